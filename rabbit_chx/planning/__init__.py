"""How a broker becomes what a file says: the comparison of both, the steps of each ring, what they move, and the reasons to refuse it.

No I/O.
"""
