"""Bulk loads by files: the stage, the steps of a load, and what writes the files."""
