"""The embedded store on LMDB."""
