"""One AMQP connection, with publisher confirms or consuming: its session without I/O, a blocking and an asyncio loop."""
