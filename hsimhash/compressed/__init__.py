"""A set of fingerprints as sorted, compressed tables in Parquet, and millions of queries answered by scanning them."""

from hsimhash.compressed.match import CompressedTables, NearPairs
from hsimhash.compressed.write import WriteLimits, write_tables

__all__ = ["CompressedTables", "NearPairs", "WriteLimits", "write_tables"]
