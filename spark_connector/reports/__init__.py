"""What became of the rows of a write: by task, in all, as text and as a file."""
