"""Drop-in replacements for other libraries: to try hsimhash, change the import."""
