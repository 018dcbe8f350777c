"""Large jobs on Spark, from DataFrames to DataFrames; the driver's memory does not grow with them.

`fingerprints` and `dedup` take texts; `pairs`, `clusters`, `compress`, `match` and `bulk_load` take what `fingerprints`
returns. `text=` and `id=` name the columns. `fingerprints` is lazy; all others run jobs when they are called.

PySpark 3.5 or newer; hsimhash and pyarrow must be installed where the executors run. Work is cut into parts that one
task holds in memory, as arrays; between tasks these travel as bytes, not as rows.
"""

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("hsimhash.spark needs PySpark: pip install 'hsimhash[spark]'") from error

from hsimhash.spark.bulk_load import BulkLoadTotals, bulk_load, bulk_load_files
from hsimhash.spark.clusters import clusters
from hsimhash.spark.columns import check_place, write_mode
from hsimhash.spark.dedup import dedup_files
from hsimhash.spark.frames import dedup
from hsimhash.spark.near_pairs import PairLimits
from hsimhash.spark.records import RecordOptions, read_documents
from hsimhash.spark.signatures import fingerprints
from hsimhash.spark.tables import LAYOUT, compress, match, profile_of
from hsimhash.spark.vertices import SparkDedupOptions, pairs

__all__ = [
    "LAYOUT",
    "BulkLoadTotals",
    "PairLimits",
    "RecordOptions",
    "SparkDedupOptions",
    "bulk_load",
    "bulk_load_files",
    "check_place",
    "clusters",
    "compress",
    "dedup",
    "dedup_files",
    "fingerprints",
    "match",
    "pairs",
    "profile_of",
    "read_documents",
    "write_mode",
]
