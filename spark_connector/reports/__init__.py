"""Reports of writes, tasks and dry runs, as values, text, JSON and files."""
