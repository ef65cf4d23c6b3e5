"""The options of ``format("rabbitmq")``: each is stated once, and its text read and checked."""
