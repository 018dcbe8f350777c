"""The stores' costs, for tests of what depends on them."""

from __future__ import annotations

from hsimhash.store import backends

LMDB_PRICES, HBASE_PRICES, REDIS_PRICES = (backends()[name].prices for name in ("lmdb", "hbase", "redis"))
