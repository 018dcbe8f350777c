"""HBase's second Thrift interface, as far as it is called: `hbase2.thrift`, loaded once."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import thriftpy2

THRIFT2: ModuleType = thriftpy2.load(
    str(Path(__file__).with_name("hbase2.thrift")), module_name="hsimhash_hbase2_thrift"
)
