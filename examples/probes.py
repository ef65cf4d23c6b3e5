"""A member of a consumer group with a readiness probe for Kubernetes.

python probes.py amqp://user@host QUEUE...  answers GET / on port 8080 with 200 while `ConsumerGroup.healthy` is true, and with 503
otherwise, also after the group has ended. In the container:

    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 5}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 10}
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial

from rabbit_chx import ConsumerGroup
from rabbit_chx.consuming import GroupMessage

PORT = int(os.environ.get("PROBE_PORT", "8080"))


async def handle(message: GroupMessage) -> None:
    """Handle a message."""
    print(message.queue, message.routing_key, flush=True)


async def answer(group: ConsumerGroup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a request of the kubelet with the health of the member."""
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
    health = group.healthy()
    body = f"{health}\n".encode()
    status = "200 OK" if health else "503 Service Unavailable"
    writer.write(
        f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    await writer.drain()
    writer.close()


async def main(url: str, *queues: str) -> None:
    """Run the member until SIGTERM."""
    async with ConsumerGroup(url, queues) as group:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, group.stop)
        async with await asyncio.start_server(partial(answer, group), port=PORT):
            await group.run(handle)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
