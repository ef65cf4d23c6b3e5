"""What the broker's tools print of a ring, read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ring_terms import HOSTILE, term

from rabbit_chx.broker import SavedRing
from rabbit_chx.broker.ring_source import eval_expression, read_eval_of_exchange
from rabbit_chx.errors import NotFoundError, RabbitChxError, RingSourceError
from rabbit_chx.routing import Destination, ExchangeRef


def diagnostics_json(buckets: dict[str, str], exchange: str = "x", vhost: str | None = None) -> str:
    message = {"message": f"Consistent hashing ring state for exchange '{exchange}' in vhost '{vhost}'"}
    return json.dumps({"exchange": exchange, "buckets": buckets, "result": "ok"} | (message if vhost else {}))


def banner(exchange: str, vhost: str) -> str:
    return f"Inspecting consistent hashing ring state for exchange {exchange} in virtual host '{vhost}'...\n"


def test_the_exchange_has_its_ring_and_what_it_hashes() -> None:
    def said(arguments: str) -> str:
        return f"{{exchange,[{arguments}],\n {term((0, 'queue', 'a'), (1, 'queue', 'b')).strip()}}}\n"

    def digits(text: str) -> int:
        return int.from_bytes(b"\1" + text.encode())

    header = f"{{{digits('hash-header')},{digits('tenant')}}}"
    assert read_eval_of_exchange(said(""), "/", "x") == (("a", "b"), {})
    buckets, arguments = read_eval_of_exchange(said(header), "/", "x")
    assert (buckets, buckets.next_bucket, arguments) == (("a", "b"), 2, {"hash-header": "tenant"})
    assert read_eval_of_exchange(said(f"{header},{header}"), "/", "x")[1] == {"hash-header": "tenant"}
    with pytest.raises(NotFoundError, match="there is no x-consistent-hash exchange 'x'"):
        read_eval_of_exchange("{error,not_found}\n", "/", "x")
    with pytest.raises(RingSourceError, match="this is the ring of exchange 'x' in vhost '/', not of 'y'"):
        read_eval_of_exchange(said(""), "/", "y")
    for text in ("", "{exchange,[],", "{exchange,[{1}],{ring,[]}}", "{exchange,[],{other,[]}}"):
        with pytest.raises(RingSourceError, match="this is not what the eval expression prints"):
            read_eval_of_exchange(text, "/", "x")


@pytest.mark.parametrize(
    ("text", "buckets", "next_bucket"),
    [
        (
            diagnostics_json({str(n): f"q{n}" for n in sorted(range(12), key=str)}),
            [f"q{n}" for n in range(12)],
            None,
        ),
        (
            "".join(f"Ring index: {n}, queue: 'q{n}\x85\u2028'\r\n" for n in (1, 10, 2)),
            [None, "q1\x85\u2028", "q2\x85\u2028", *[None] * 7, "q10\x85\u2028"],
            None,
        ),
        (diagnostics_json({"0": "a", "3": "b"}), ["a", None, None, "b"], None),
        (term((1, "queue", "a")), [None, "a"], 2),
        (term((0, "queue", "a"), next_bucket=6), ["a", *[None] * 5], 6),
        (term(next_bucket=2), [None, None], 2),
        (term((0, "queue", "a"), (1, "queue", "b"), next_bucket=1), ["a", "b"], None),
        *((text, [], None) for text in (diagnostics_json({}), "{ring,[]}", banner("x", "/"))),
        (term(), [], 0),
    ],
)
def test_output_is_read_as_buckets(text: str, buckets: list[str | None], next_bucket: int | None) -> None:
    read = SavedRing(text).read("/", "x")
    assert (read, read.next_bucket) == (tuple(buckets), next_bucket)


#: Outputs by the error that is raised for the exchange `x` of the vhost `v 2`.
REFUSED: dict[tuple[type[RabbitChxError], str], list[str]] = {
    (NotFoundError, "'x'.*'v 2'"): [
        '{"message":"Exchange does not exist or is of a different type","result":"error"}',
        "{error,not_found}\n",
        "Error:\nExchange does not exist or is of a different type\n",
    ],
    (RingSourceError, "this is the ring of .* 'x' in vhost"): [
        diagnostics_json({"0": "q"}, exchange="y"),
        diagnostics_json({"0": "q"}, vhost="other"),
        banner("y", "v 2") + "Ring index: 0, queue: 'q'",
        banner("x", "other"),
        term((0, "queue", "q"), exchange="y", vhost="v 2"),
        term((0, "queue", "q"), vhost="other"),
    ],
    (RingSourceError, "was not read"): [
        "",
        "Ring index: 0, queue: 'q",
        "Ring index: 0, queue: 'q'\nand more",
        '{"message":"unable to connect","result":"error"}',
        "[]",
        "{}",
        *(f'{{"buckets":{wrong}}}' for wrong in ("[]", '{"0":1}', '{"-1":"q"}', '{"99999999":"q"}')),
        "{ring,[{0,queue,97}",
        "{ring,[{0,queue,353}{1,queue,353}]}",
        *(f"{{ring,[{{0,{wrong}}}]}}" for wrong in ("topic,353", "queue,511", "queue," + "9" * 5000)),
    ],
}


@pytest.mark.parametrize(
    ("kind", "says", "text"), [(*error, text) for error, texts in REFUSED.items() for text in texts]
)
def test_output_without_the_ring_is_refused(kind: type[RabbitChxError], says: str, text: str) -> None:
    with pytest.raises(kind, match=says):
        SavedRing(text).read("v 2", "x")


@pytest.mark.parametrize("exchange", HOSTILE)
def test_names_that_look_like_answers_are_names(exchange: str) -> None:
    lines = "".join(f"Ring index: {n}, queue: '{queue}'\n" for n, queue in enumerate(HOSTILE))
    entries = [(n, "queue", queue) for n, queue in enumerate(HOSTILE)]

    for text in (
        diagnostics_json({str(n): queue for n, queue in enumerate(HOSTILE)}, exchange, "/"),
        lines,
        banner(exchange, "/") + lines,
        term(*entries, exchange=exchange),
    ):
        assert SavedRing(text).read("/", exchange) == tuple(HOSTILE)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(st.lists(st.tuples(st.booleans(), NAMES), max_size=5))
def test_any_name_survives_the_eval_term(destinations: list[tuple[bool, str]]) -> None:
    text = term(
        *((i, "queue" if queue else "exchange", name) for i, (queue, name) in enumerate(destinations))
    )
    expected: list[Destination] = [name if queue else ExchangeRef(name) for queue, name in destinations]

    assert SavedRing(text).read("/", "x") == tuple(expected)


@given(NAMES, NAMES)
def test_no_character_of_a_name_reaches_the_eval_expression(vhost: str, exchange: str) -> None:
    digits = str.maketrans("", "", "0123456789,")

    assert eval_expression(vhost, exchange).translate(digits) == eval_expression("a", "b").translate(digits)


@given(st.text(max_size=30))
def test_any_saved_text_gives_a_ring_or_an_error_of_ours(text: str) -> None:
    try:
        SavedRing("{ring,[" + text).read("/", "x")
        SavedRing(text).read("/", "x")
    except RabbitChxError:
        pass
