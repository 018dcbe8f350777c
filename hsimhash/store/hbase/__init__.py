"""The index on HBase: rows as `schema/rowkey.md` has them, through a Thrift gateway."""
