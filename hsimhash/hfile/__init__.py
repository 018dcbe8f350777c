"""Write HBase's file format, HFile version 3, without Java; `schema/hfile.md` describes the bytes."""

from hsimhash.hfile.cells import KeyValue
from hsimhash.hfile.writer import BloomFilter, FileSettings, HFileWriter, Staged

__all__ = ["BloomFilter", "FileSettings", "HFileWriter", "KeyValue", "Staged"]
