"""The store on PostgreSQL: address, codec, failures, session, write, bulk, audit, operations, and the store."""
