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

NO_RING = '{"message":"Exchange does not exist or is of a different type","result":"error"}'

NO_RING_TEXT = "Error:\nExchange does not exist or is of a different type\n"


def diagnostics_json(buckets: dict[str, object], exchange: str = "x") -> str:
    return json.dumps({"result": "ok", "node": "rabbit@h", "exchange": exchange, "buckets": buckets})


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


def test_buckets_are_sorted_as_numbers() -> None:
    queues: dict[str, object] = {str(n): f"q{n}" for n in sorted(range(12), key=str)}

    assert SavedRing(diagnostics_json(queues)).read("/", "x") == tuple(f"q{n}" for n in range(12))
    lines = [f"Ring index: {n}, queue: 'q{n}\x85\u2028'\r\n" for n in sorted(range(12), key=str)]
    assert SavedRing("".join(lines)).read("/", "x") == tuple(f"q{n}\x85\u2028" for n in range(12))


def test_holes_are_kept() -> None:
    assert SavedRing(diagnostics_json({"0": "a", "3": "b"})).read("/", "x") == ("a", None, None, "b")
    assert SavedRing(term((1, "queue", "a"))).read("/", "x") == (None, "a")


def test_the_eval_term_has_the_number_of_the_next_bucket() -> None:
    buckets = SavedRing(term((0, "queue", "a"), next_bucket=6)).read("/", "x")

    assert (buckets, buckets.next_bucket) == (("a", None, None, None, None, None), 6)
    assert SavedRing(term(next_bucket=2)).read("/", "x") == (None, None)
    assert (
        SavedRing(term((0, "queue", "a"), (1, "queue", "b"), next_bucket=1)).read("/", "x").next_bucket
        is None
    )
    assert SavedRing(diagnostics_json({"0": "a"})).read("/", "x").next_bucket is None


@pytest.mark.parametrize("text", [diagnostics_json({}), "{ring,[]}", term(), banner("x", "/")])
def test_an_empty_ring_has_no_buckets(text: str) -> None:
    assert SavedRing(text).read("/", "x") == ()


@pytest.mark.parametrize("text", [NO_RING, "{error,not_found}\n", NO_RING_TEXT])
def test_saved_output_without_a_ring_is_not_found(text: str) -> None:
    with pytest.raises(NotFoundError, match=r"'x'.*'my vhost'"):
        SavedRing(text).read("my vhost", "x")


@pytest.mark.parametrize("exchange", HOSTILE)
def test_names_that_look_like_answers_are_names(exchange: str) -> None:
    lines = "".join(f"Ring index: {n}, queue: '{queue}'\n" for n, queue in enumerate(HOSTILE))
    entries = [(n, "queue", queue) for n, queue in enumerate(HOSTILE)]

    for text in (
        diagnostics_json({str(n): queue for n, queue in enumerate(HOSTILE)}, exchange),
        lines,
        banner(exchange, "/") + lines,
        term(*entries, exchange=exchange),
    ):
        assert SavedRing(text).read("/", exchange) == tuple(HOSTILE)


@pytest.mark.parametrize("vhost", ["/", "v 2"])
@pytest.mark.parametrize(
    "text",
    [
        diagnostics_json({"0": "q"}, exchange="y"),
        json.dumps(
            {
                "buckets": {"0": "q"},
                "exchange": "x",
                "message": "Consistent hashing ring state for exchange 'x' in vhost 'other'",
            }
        ),
        banner("y", "/") + "Ring index: 0, queue: 'q'",
        banner("x", "other"),
        term((0, "queue", "q"), exchange="y"),
        term((0, "queue", "q"), vhost="other"),
    ],
)
def test_saved_output_of_another_exchange_or_vhost_is_refused(text: str, vhost: str) -> None:
    with pytest.raises(RingSourceError, match=r"this is the ring of .* 'x' in vhost"):
        SavedRing(text).read(vhost, "x")


def test_saved_output_that_names_the_vhost() -> None:
    message = "Consistent hashing ring state for exchange 'x' in vhost 'v 2'"
    text = json.dumps({"buckets": {"0": "q"}, "exchange": "x", "message": message})

    assert SavedRing(text).read("v 2", "x") == ("q",)
    assert SavedRing(term((0, "queue", "q"), vhost="v 2")).read("v 2", "x") == ("q",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ring index: 0, queue: 'q",
        "Ring index: 0, queue: 'q'\nand more",
        '{"message":"unable to connect","result":"error"}',
        "[]",
        "{}",
        '{"buckets":[]}',
        '{"buckets":{"0":1}}',
        '{"buckets":{"-1":"q"}}',
        '{"buckets":{"99999999":"q"}}',
        "{ring,[{0,queue,97}",
        "{ring,[{0,queue,353}{1,queue,353}]}",
        "{ring,[{0,topic,353}]}",
        "{ring,[{0,queue,511}]}",
        "{ring,[{0,queue," + "9" * 5000 + "}]}",
    ],
)
def test_output_that_is_something_else(text: str) -> None:
    with pytest.raises(RingSourceError, match="was not read"):
        SavedRing(text).read("/", "x")


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
