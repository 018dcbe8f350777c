"""HBase's files, version 3, written and read without Java: `HFileWriter`, `HFile`; `schema/hfile.md` has the bytes."""

from hsimhash.hfile.cells import KeyValue
from hsimhash.hfile.merge import merged_cells, visible_cells
from hsimhash.hfile.reader import HFile
from hsimhash.hfile.writer import BloomFilter, FileSettings, HFileWriter, Staged

__all__ = ["BloomFilter", "FileSettings", "HFile", "HFileWriter", "KeyValue", "Staged", "merged_cells", "visible_cells"]
