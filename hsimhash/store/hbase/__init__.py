"""The store on HBase: rows as in `schema/rowkey.md`, through a Thrift gateway."""
