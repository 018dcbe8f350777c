"""Access to a table through Thrift gateways: addresses, connections, calls, failures."""
