"""One AMQP connection, with publisher confirms: its session without I/O, a blocking and an asyncio loop."""
