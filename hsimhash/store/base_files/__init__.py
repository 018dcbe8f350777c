"""Memory-mapped files of sorted drawer rows that never change: the base of an embedded index, and tables."""
