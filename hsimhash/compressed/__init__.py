"""Keep a set of fingerprints in sorted, compressed Parquet tables, and match millions of queries by scanning them."""

from hsimhash.compressed.match import CompressedTables, NearPairs
from hsimhash.compressed.write import Written, write_tables

__all__ = ["CompressedTables", "NearPairs", "Written", "write_tables"]
