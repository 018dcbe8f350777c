"""Bulk loads by files: the stage, the steps of a load, the writers of files."""
