"""Which queue a row goes to, and partitions made for queues."""
