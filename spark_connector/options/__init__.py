"""The options of ``format("rabbitmq")``: the table of all options, and the value that they make together."""
