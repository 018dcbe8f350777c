"""Drop-in replacements for other libraries: change the import to try hsimhash."""
