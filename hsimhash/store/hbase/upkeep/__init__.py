"""Maintenance of the table: checks, collections, jobs over ranges of rows."""
