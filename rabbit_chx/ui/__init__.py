"""``rabbit-chx ui``: the reports of the commands as pages in a browser. It reads only (extra `ui`)."""
