"""The rows of the table: cells, the write protocol, claims, reads."""
