"""The questions of tracing, and what is refused beside it. What tracing shows is in tests/broker/test_firehose.py."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import click
import pytest
from command_line import Ran

from rabbit_chx.cli import broker_options, tracing
from rabbit_chx.cli.broker_options import offer_to_end
from rabbit_chx.cli.tracing import TraceOptions, read_trace
from rabbit_chx.errors import InputError, NotDeterminedError, PlanRefusedError


def at_terminal(monkeypatch: pytest.MonkeyPatch, *, answer: bool | None) -> list[str]:
    """Let the user answer; None: there is no terminal. Return what is asked."""
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return bool(answer)

    for module in (tracing, broker_options):
        monkeypatch.setattr(module, "has_terminal", lambda: answer is not None)
    monkeypatch.setattr(click, "confirm", confirm)
    return asked


@pytest.mark.parametrize(
    ("answer", "yes", "is_on", "traces"),
    [
        (True, False, False, True), (False, False, False, False), (None, False, False, False),
        (None, True, False, True), (None, False, True, True),
    ],
)  # fmt: skip
def test_tracing_is_switched_on_only_if_the_user_agrees(
    monkeypatch: pytest.MonkeyPatch, *, answer: bool | None, yes: bool, is_on: bool, traces: bool
) -> None:
    asked = at_terminal(monkeypatch, answer=answer)
    opened = Mock()
    opened.is_traced.return_value = is_on
    opened.trace.return_value = [("k", ("q",))]
    given = TraceOptions(2.0, yes=yes)
    if traces:
        assert read_trace(opened, "/", "x", given) == [("k", ("q",))]
    else:
        with pytest.raises(PlanRefusedError, match="nothing was switched on"):
            read_trace(opened, "/", "x", given)
    assert opened.trace.called == traces
    assert len(asked) == (answer is not None)
    assert all("tracing costs each message of vhost '/' a copy for 2 s" in question for question in asked)


def test_no_message_is_not_determined() -> None:
    opened = Mock()
    opened.is_traced.return_value, opened.trace.return_value = True, []
    with pytest.raises(
        NotDeterminedError, match="no message was published to exchange 'x' of vhost '/' in 2 s"
    ):
        read_trace(opened, "/", "x", TraceOptions(2.0))


@pytest.mark.parametrize(
    ("answer", "yes", "ends"),
    [(True, False, True), (False, False, False), (None, False, False), (None, True, True)],
)
def test_what_is_left_on_is_named_and_may_be_ended(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    answer: bool | None,
    yes: bool,
    ends: bool,
) -> None:
    asked = at_terminal(monkeypatch, answer=answer)
    opened = Mock()
    opened.left_trace.return_value = "me@host at noon"
    offer_to_end(opened, "/", yes=yes)
    said = capsys.readouterr().err
    assert opened.end_trace.called == ends
    assert "me@host at noon" in "".join([said, *asked])
    assert ("rabbit-chx check --yes" in said) == (not ends)
    opened.left_trace.return_value = None
    offer_to_end(opened, "/", yes=yes)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("check", "--trace", "1"), "--trace is about one exchange"),
        (("check", "x", "y", "--trace", "1"), "--trace is about one exchange"),
        (("check", "x", "--trace", "1", "--observed", "a.csv"), "--trace and --observed exclude each other"),
        (("check", "--trace", "1", "--all-vhosts"), "--trace and --all-vhosts exclude each other"),
        (("check", "a.toml", "--offline", "--trace", "1"), "--offline and --trace exclude each other"),
        (("record", "--all", "--trace", "1"), "--trace and --all exclude each other"),
        (("record", "x", "--from", "r.json", "--trace", "1"), "--trace and --from exclude each other"),
        (("verify", "x", "--trace", "1", "--keys", "k{1..9}"), "--trace and --keys exclude each other"),
        (("verify", "x", "--trace", "0"), "--trace 0 sees no message"),
    ],
)  # fmt: skip
def test_what_tells_keys_otherwise_is_refused(ran: Ran, command: tuple[str, ...], says: str) -> None:
    code, _, err = ran(*command, "--url", "amqp://127.0.0.1:1")
    assert code == 2
    with pytest.raises(InputError, match=says):
        raise InputError(err)
