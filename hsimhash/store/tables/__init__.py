"""Read-only indexes: a folder that is written once, then queried, copied and served."""
