"""The table's rows: cells, the write protocol, claims, reads."""
