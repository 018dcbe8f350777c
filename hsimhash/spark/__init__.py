"""Run large jobs on Spark, from DataFrames to DataFrames; the driver's memory does not grow with the data.

`fingerprints` and `dedup` take texts; `pairs`, `clusters`, `write_tables` and `bulk_load` take the result of
`fingerprints`. `text=` and `id=` name the columns. `fingerprints` is lazy; all other functions run jobs when they are
called.

`dedup_files` and `fitted_to_files` learn from files how rare words are, for profiles such as auto-3. The functions for
DataFrames do not: write a table with 'hsimhash fit', and pass `profile="auto-3:rarity=TABLE"`. `pairs` and `clusters`
need the profile that made the keys.

This package needs PySpark 3.5 or newer; hsimhash and pyarrow must be installed on the executors. Work is cut into
parts, each of which one task can hold in memory as arrays; between tasks, parts are sent as bytes, not as rows.
"""

import importlib
from typing import TYPE_CHECKING

from hsimhash.extras import install_command

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"hsimhash.spark needs PySpark: {install_command('spark')}") from error

from hsimhash.spark.clusters import clusters
from hsimhash.spark.columns import check_place, write_mode
from hsimhash.spark.dedup import dedup_files
from hsimhash.spark.fitting import fitted_to_files
from hsimhash.spark.frames import dedup
from hsimhash.spark.near_pairs import PairLimits
from hsimhash.spark.records import RecordOptions, read_documents
from hsimhash.spark.signatures import fingerprints
from hsimhash.spark.tables import check_new_tables, write_tables
from hsimhash.spark.vertices import SparkDedupOptions, pairs

if TYPE_CHECKING:
    from hsimhash.spark.bulk_loading import BulkLoadTotals, bulk_load, bulk_load_files

__all__ = [
    "BulkLoadTotals",
    "PairLimits",
    "RecordOptions",
    "SparkDedupOptions",
    "bulk_load",
    "bulk_load_files",
    "check_new_tables",
    "check_place",
    "clusters",
    "dedup",
    "dedup_files",
    "fingerprints",
    "fitted_to_files",
    "pairs",
    "read_documents",
    "write_mode",
    "write_tables",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import bulk loads on first use: they need the HBase store, which every task would otherwise load."""
        if name in ("BulkLoadTotals", "bulk_load", "bulk_load_files"):
            return getattr(importlib.import_module("hsimhash.spark.bulk_loading"), name)
        raise AttributeError(f"module 'hsimhash.spark' has no attribute {name!r}")
