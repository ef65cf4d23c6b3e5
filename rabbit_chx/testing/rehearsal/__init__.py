"""An upgrade rehearsed on brokers of our own: the same topology and the same messages on both releases."""
