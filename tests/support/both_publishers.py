"""The blocking and the asyncio publisher with one interface, for tests of what they share."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeAlias

from rabbit_chx.publishing import AsyncPublisher, Publisher, PublishReport


class Awaited:
    """An `AsyncPublisher` with the interface of `Publisher`: each call runs the event loop until it is done."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._publisher = AsyncPublisher(*arguments, **options)

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._publisher.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._runner.run(self._publisher.__aexit__(exc_type, exc, traceback))
        finally:
            self._runner.close()

    @property
    def report(self) -> PublishReport:
        """As that of `AsyncPublisher`."""
        return self._publisher.report

    def send(self, *arguments: Any, **options: Any) -> None:
        """As `AsyncPublisher.send`."""
        self._runner.run(self._publisher.send(*arguments, **options))

    def flush(self) -> PublishReport:
        """As `AsyncPublisher.flush`."""
        return self._runner.run(self._publisher.flush())

    def publish_many(self, *arguments: Any, **options: Any) -> PublishReport:
        """As `AsyncPublisher.publish_many`."""
        return self._runner.run(self._publisher.publish_many(*arguments, **options))


AnyPublisher: TypeAlias = "type[Publisher | Awaited]"
BOTH: tuple[AnyPublisher, ...] = (Publisher, Awaited)
