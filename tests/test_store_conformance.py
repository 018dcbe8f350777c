"""What every store must do, in memory, on LMDB and on a model of HBase; `integration/` tests the servers."""

from __future__ import annotations

from hsimhash.store.conformance import *  # noqa: F403  (its tests; the fixture `place` says where)
