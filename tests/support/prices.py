"""What the stores take, for tests of what follows from it."""

from __future__ import annotations

from hsimhash.store import backends

LMDB_PRICES, HBASE_PRICES, REDIS_PRICES = (backends()[name].prices for name in ("lmdb", "hbase", "redis"))
