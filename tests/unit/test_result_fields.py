"""A value that is a guess is one wherever it is shown."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

from rabbit_chx.rendering.document import Data, Document, Lines, Table
from rabbit_chx.rendering.html import HtmlOutput
from rabbit_chx.rendering.output import ConsoleOutput, MarkdownOutput
from rabbit_chx.result_fields import as_known, shown, to_json


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one field."""

    key: str = field(metadata=shown("key"))
    queue: str = field(metadata=shown("queue", guess="likely"))


@dataclass(frozen=True, slots=True)
class Share:
    """An answer of several fields."""

    queue: str = field(metadata=shown("queue"))
    share: float = field(metadata=shown("share", lambda share: f"{share:.0%}", as_json=lambda share: -share))
    skew: float = field(metadata=shown())


def answer(*, is_known: bool) -> Answer:
    return Answer("k", as_known("q1", is_known=is_known))


def share(*, is_known: bool) -> Share:
    return Share("q1", as_known(0.5, is_known=is_known), as_known(0.1, is_known=is_known))


def report(*, is_known: bool) -> Document:
    matrix = Table.of(Share, [share(is_known=True)], key="matrix")
    return Document(
        "route",
        [
            Data({"buckets": as_known(["q1"], is_known=is_known)}),
            Table.of(Answer, [answer(is_known=is_known)], key="answers"),
            Lines(["k9"], key="keys", is_guess=not is_known),
            matrix if is_known else matrix.as_guess(1),
        ],
    )


def test_json_has_null_and_the_guess_beside_it() -> None:
    assert to_json(answer(is_known=True)) == {"key": "k", "queue": "q1"}
    assert to_json(answer(is_known=False)) == {"key": "k", "queue": None, "likely": "q1"}
    of_one, of_matrix = {"queue": "q1"}, [{"queue": "q1", "share": -0.5, "skew": 0.1}]
    assert to_json(share(is_known=False)) == {
        **of_one,
        "share": None,
        "skew": None,
        "likely": {"share": -0.5, "skew": 0.1},
    }
    known = {"buckets": ["q1"], "keys": ["k9"], "matrix": of_matrix}
    fields = report(is_known=False).as_json()
    assert {name: fields[name] for name in known} == dict.fromkeys(known)
    assert fields["likely"] == known
    assert {name: report(is_known=True).as_json()[name] for name in known} == known


def test_people_see_that_it_is_likely_in_the_row_itself() -> None:
    for output in (ConsoleOutput, MarkdownOutput, HtmlOutput):
        shown_as = {}
        for is_known in (True, False):
            stream = io.StringIO()
            output(stream).show(report(is_known=is_known))
            shown_as[is_known] = stream.getvalue()
        assert "likely" not in shown_as[True]
        for text in ("likely q1", "likely k9", "likely 50%"):
            assert text in shown_as[False], output
