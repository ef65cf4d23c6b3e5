"""What is known of the order of a ring: records on the broker, the mark that proves them, and their history. No I/O."""
