"""Read-only indexes: a folder that is written once, and can then be queried, copied and served."""
