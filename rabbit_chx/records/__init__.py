"""What is known of the order of a ring: records on the broker, and the mark that proves them. No I/O."""
