"""The number of publisher names that a stream may remember, with a scripted answer of the API."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import pytest
from scripted_api import ScriptedApi

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.errors import BrokerRefusedError, InputError
from rabbit_chx.streams import stored_ids


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("count", "warns"), [(199, False), (200, True), (250, True), (251, False)])
def test_the_bounds_of_the_names(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    count: int,
    warns: bool,
    is_known: bool,
) -> None:
    """`count` includes the publisher's own name, which the stream may have already."""
    names = [f"name-{n}" for n in range(count)]
    writers = dict.fromkeys(names if is_known else names[1:], 1)
    monkeypatch.setattr(stored_ids, "_writers", lambda *_: writers)
    refused = pytest.raises(InputError, match="remembers 251 publishers with 'name-0', of at most 255")
    with caplog.at_level(logging.WARNING), refused if count > 250 else nullcontext():
        stored_ids.check_references(ManagementUrl.of("http://h"), ConnectionSettings(), "s", "name-0")
    assert bool(caplog.records) == warns


def test_a_plugin_that_is_not_enabled_is_named_with_the_remedy() -> None:
    with ScriptedApi() as api:
        url = ManagementUrl.of(f"http://{api.address}")
        with pytest.raises(BrokerRefusedError) as caught:
            stored_ids.check_references(url, ConnectionSettings(), "s", "name-0")
    remedy = "rabbitmq-plugins enable rabbitmq_stream_management; or leave management_url out"
    assert remedy in str(caught.value)
