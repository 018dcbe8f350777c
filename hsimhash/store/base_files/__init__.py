"""Immutable memory-mapped files of sorted drawer rows: the base of an embedded index, and tables."""
