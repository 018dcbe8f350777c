"""The embedded store: codec, environment and session, rows and merge, audit, and the store that joins them."""
