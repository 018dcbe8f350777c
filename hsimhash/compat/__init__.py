"""The functions of other libraries, with their results: to try hsimhash, change the import."""
