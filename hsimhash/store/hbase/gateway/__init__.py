"""Access to a table: addresses, connections, Thrift, failures."""
