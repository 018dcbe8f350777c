"""Files of sorted drawer rows that are mapped and never changed: the base of an embedded index, and tables."""
