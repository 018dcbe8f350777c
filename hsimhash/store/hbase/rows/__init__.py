"""What the table holds and how it is written: cells, the protocol, claims, reads."""
