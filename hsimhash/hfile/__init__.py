"""Write HBase's files, version 3, without Java: `HFileWriter`; `schema/hfile.md` has the bytes."""

from hsimhash.hfile.cells import KeyValue
from hsimhash.hfile.writer import BloomFilter, FileSettings, HFileWriter, Staged

__all__ = ["BloomFilter", "FileSettings", "HFileWriter", "KeyValue", "Staged"]
