"""A web service that publishes one message per request, and answers when the broker has confirmed it.

`AMQP_URL=... uvicorn web_service:app`, in this folder, serves two forms of the same request: `POST /threads/orders/KEY` runs in a thread,
`POST /asyncio/orders/KEY` in the event loop. `GET /health` is a readiness probe.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Body, FastAPI, Header, Request, Response

from rabbit_chx import Limits, Retries, SharedPublisher
from rabbit_chx.errors import PASSING_ERRORS, RabbitChxError

_log = logging.getLogger(__name__)

Content = Annotated[bytes, Body(media_type="application/octet-stream")]
#: The client's own id of the request: consumers recognise a repeated message by it.
Id = Annotated[str | None, Header(alias="Idempotency-Key")]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the publisher in the process that serves, after the fork of a prefork server, and wait for open messages at the end."""
    url = os.environ.get("AMQP_URL", "amqp://localhost")
    async with SharedPublisher(
        url,
        exchange="orders",
        block_s=1,
        retries=Retries(reconnect_timeout_s=5),
        limits=Limits(confirm_timeout_s=5, blocked_timeout_s=5),
    ) as publisher:
        app.state.publisher = publisher
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/threads/orders/{key}")
def order_in_a_thread(key: str, body: Content, request: Request, id_: Id = None) -> Response:
    """Publish in one of the threads that FastAPI has for functions without `async`."""
    publisher: SharedPublisher = request.app.state.publisher
    try:
        publisher.submit(key, body, message_id=id_).result()
    except RabbitChxError as error:
        return answer_to(error)
    return Response(status_code=202)


@app.post("/asyncio/orders/{key}")
async def order_in_the_event_loop(key: str, body: Content, request: Request, id_: Id = None) -> Response:
    """Publish in the event loop."""
    published: Awaitable[None] = request.app.state.publisher.publish(key, body, message_id=id_)
    try:
        await published
    except RabbitChxError as error:
        return answer_to(error)
    return Response(status_code=202)


def answer_to(error: RabbitChxError) -> Response:
    """Return 503 if a repeated request may succeed: the broker cannot be reached, refuses for now, or has not answered. Otherwise 422.

    The error names the broker, its user and its vhost. It is for the log, and not for the customer.
    """
    _log.warning("an order was not published: %s", error)
    if isinstance(error, PASSING_ERRORS):
        return Response("the order is not stored yet: try again", 503, {"Retry-After": "1"})
    return Response("the order cannot be stored", 422)


@app.get("/health")
def health(request: Request) -> Response:
    """Answer 200 while there is a connection that the broker does not block."""
    publisher: SharedPublisher = request.app.state.publisher
    return Response(str(publisher.stats()), status_code=200 if publisher.healthy() else 503)
