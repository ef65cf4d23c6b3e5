"""The predicted queue of each row, and partitions by queue."""
