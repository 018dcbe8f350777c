"""Bulk loads by files: the stage, the steps of a load, what writes the files."""
