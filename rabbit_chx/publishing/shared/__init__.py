"""`SharedPublisher`: single messages from many threads and event loops, each with its own outcome."""
