"""The way to a table: addresses, connections and what they carry, Thrift, failures."""
