"""Bulk loads via HFiles: the stage, the steps of a load, and the code that writes the files."""
