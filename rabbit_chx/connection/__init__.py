"""An AMQP connection with publisher confirms: the session without I/O, a blocking and an asyncio loop."""
