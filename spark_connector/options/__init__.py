"""The options of ``format("rabbitmq")``: every option once, its text, and the value that they make together."""
