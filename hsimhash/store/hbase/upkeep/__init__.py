"""What looks after the table: checks, collections, and jobs over ranges of it."""
