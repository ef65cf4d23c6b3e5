"""An AMQP connection with publisher confirms: the session without I/O, and a blocking loop."""
