"""What the commands answer, as JSON and as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis import movement_matrix, uniformity_table
from rabbit_chx.cli import main
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, Release, rule_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
BIND = ("--bind", "q1=1", "--bind", "q2=10")
EQUAL = ("--bind", "q1=1", "--bind", "q2=1")


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--output json``, expects an exit code, gives the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--output", "json"]) == code
        found = capsys.readouterr()
        assert found.err == ""
        return json.loads(found.out)

    return run


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, expects an exit code, gives what it prints."""

    def run(*arguments: str, code: int = 0) -> str:
        assert main(arguments) == code
        found = capsys.readouterr()
        assert found.err == ""
        return found.out

    return run


def test_route_says_what_the_ring_says(answer: Callable[..., Any]) -> None:
    keys = [f"user-{n}" for n in range(50)]
    document = answer("route", *BIND, "--release", "4.0.5", *keys)
    assert document["answers"] == [{"key": key, "destination": RING.destination_for(key)} for key in keys]
    assert document["ring"] == {
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "replayed",
        "buckets": 11,
        "destinations": ["q1", "q2"],
    }


def test_a_name_may_hold_an_equals_sign_and_a_destination_may_be_an_exchange(
    answer: Callable[..., Any],
) -> None:
    bindings = ("--bind", "a=b=2", "--bind", "exchange:slot=+3")
    document = answer("route", *bindings, *(str(n) for n in range(20)))
    ring = HashRing.from_bindings([("a=b", 2), (ExchangeRef("slot"), "+3")])
    places = {"a=b": "a=b", ExchangeRef("slot"): {"exchange": "slot"}}
    assert [row["destination"] for row in document["answers"]] == [
        places[ring.destination_for(str(n)) or ""] for n in range(20)
    ]


def test_a_ring_file_keeps_its_provenance_and_its_holes(answer: Callable[..., Any], tmp_path: Path) -> None:
    ring = HashRing.from_buckets(["q1", None, "q2"], Release("3.8.9"))
    path = tmp_path / "ring.json"
    path.write_text(ring.to_json())
    document = answer("route", "--ring", str(path), "k1", "k2", "k3", "k4")
    assert document["ring"]["provenance"] == "read"
    assert [row["destination"] for row in document["answers"]] == [
        ring.destination_for(key) for key in ("k1", "k2", "k3", "k4")
    ]
    assert answer("route", "--ring", str(path), "--release", "4.3.6", "k")["ring"]["provenance"] == "assumed"


def test_a_route_has_these_fields_and_no_others(answer: Callable[..., Any]) -> None:
    (plain,) = answer("route", *BIND, "k")["answers"]
    assert plain == {"key": "k", "destination": "q2"}
    (row,) = answer("route", *BIND, "k", "--explain")["answers"]
    why = ConsistentHashExchange("x", RING).explain("k")
    assert row == {
        "key": "k",
        "destination": why.destination,
        "hashed_on": "routing-key",
        "term": '<<"k">>',
        "phash2": why.phash2,
        "seed": why.seed,
        "walk": list(why.walk),
        "bucket": why.bucket,
        "buckets": 11,
        "reason": None,
        "rule": why.rule,
        "source": why.source,
    }


def test_explain_carries_the_whole_explanation(answer: Callable[..., Any]) -> None:
    ring = RING.with_release(Release("3.12.14"))
    (row,) = answer(
        *(
            "route",
            *BIND,
            "--release",
            "3.12.14",
            "--hash-header",
            "tenant",
            "--type",
            "long",
            "5",
            "--explain",
        )
    )["answers"]
    why = ConsistentHashExchange("x", ring, {"hash-header": "tenant"}).explain(
        headers={"tenant": AmqpField("long", 5)}
    )
    assert (row["term"], row["phash2"], row["seed"]) == ("{long,5}", why.phash2, why.seed)
    assert (row["walk"], row["bucket"], row["buckets"]) == (list(why.walk), why.bucket, 11)
    assert (row["rule"], row["source"], row["destination"]) == (why.rule, why.source, why.destination)


@pytest.mark.parametrize(
    ("typed", "headers"),
    [
        ("tenant=a=b", {"tenant": "a=b"}),
        ("tenant:nonsense=a", {"tenant:nonsense": "a"}),
        ("tenant:long=5", {"tenant": ("long", 5)}),
        ("tenant:bool=true", {"tenant": ("bool", True)}),
        ("tenant:double=1.5", {"tenant": ("double", 1.5)}),
        ("tenant:decimal=3.14", {"tenant": ("decimal", (2, 314))}),
        ("tenant:timestamp=1700000000", {"tenant": ("timestamp", 1_700_000_000)}),
        ("tenant:void=", {"tenant": ("void", None)}),
        ('tenant:array=["a", 1]', {"tenant": ("array", ["a", 1])}),
        ('tenant:table={"k": {"n": 1}}', {"tenant": ("table", {"k": {"n": 1}})}),
    ],
)
def test_a_whole_message_may_have_typed_headers(
    answer: Callable[..., Any], typed: str, headers: dict[str, Any]
) -> None:
    fields = {
        name: AmqpField(*value) if isinstance(value, tuple) else value for name, value in headers.items()
    }
    exchange = ConsistentHashExchange("x", RING, {"hash-header": "tenant"})
    (row,) = answer("route", *BIND, "--hash-header", "tenant", "--header", typed, "key", "--explain")[
        "answers"
    ]
    why = exchange.explain(routing_key="key", headers=fields)
    assert (row["term"], row["destination"]) == (why.term, why.destination)


def test_properties_of_a_whole_message(answer: Callable[..., Any]) -> None:
    for name, value in (("message_id", "m=1"), ("timestamp", "1700000000")):
        arguments = ("--hash-property", name, "--property", f"{name}={value}")
        (row,) = answer("route", *BIND, *arguments)["answers"]
        assert row == {"key": "", "destination": RING.destination_for(value)}
        (row,) = answer("route", *BIND, "--hash-property", name, value)["answers"]
        assert row["destination"] == RING.destination_for(value)


def test_keys_land_where_they_should(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}")
    assert len(document["keys"]) == 20
    assert {RING.destination_for(key) for key in document["keys"]} == {"q1"}
    lines = shown("keys", *BIND, "q1", "--count", "20", "--pattern", "a key {n}").splitlines()
    assert lines == document["keys"]


def test_keys_of_a_header_of_another_type(answer: Callable[..., Any]) -> None:
    found = answer("keys", *BIND, "q1", "--hash-header", "h", "--type", "long", "--pattern", "{n}")["keys"]
    (row,) = answer("route", *BIND, "--hash-header", "h", "--type", "long", *found)["answers"]
    assert row["destination"] == "q1"


def test_simulate_gives_exact_shares_and_what_a_change_moves(answer: Callable[..., Any]) -> None:
    document = answer("simulate", *BIND, "--unbind", "q1", "--add", "q9=2")
    assert {row["destination"]: row["share"] for row in document["shares"]} == RING.shares()
    changed = RING.unbind("q1").bind("q9", 2)
    assert document["change"]["shares"]["moved"] == RING.share_moved(changed)
    cells = {(cell["from"], cell["to"]): cell["amount"] for cell in document["change"]["shares"]["cells"]}
    assert cells == movement_matrix(RING, changed).amounts
    assert (document["sample"], document["change"]["messages"]) == (None, None)


def test_simulate_counts_a_sample(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b"hot\nhot\r\nhot\nk1\nk2\n\nk3")
    sample = answer("simulate", *BIND, "--keys", str(path), "--heaviest", "1")["sample"]
    assert (sample["messages"], sample["keys"]) == (7, 5)
    assert sample["heaviest"] == [{"key": "hot", "messages": 3, "destination": RING.destination_for("hot")}]
    assert sum(row["messages"] for row in sample["destinations"]) == 7
    assert sample["chi_square"]["rough"] is True
    assert sample["chi_square"]["threshold_05"] == pytest.approx(3.841, abs=1e-3)


def test_keys_that_are_one_value_keep_their_names(answer: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("05\n5\n+5\n")
    sample = ("--hash-header", "t", "--type", "long", "--keys", str(path))
    document = answer("compare", *EQUAL, "--release", "3.12.14", "--to-release", "4.3.6", *sample, code=1)
    assert [move["key"] for move in document["sample"]["moves"]] == ["05", "5", "+5"]
    counted = answer("simulate", *EQUAL, *sample)["sample"]
    assert (counted["keys"], counted["messages"]) == (1, 3)
    assert counted["heaviest"] == [{"key": "05", "messages": 3, "destination": "q1"}]


def test_one_binding_of_several_can_be_unbound(answer: Callable[..., Any], tmp_path: Path) -> None:
    ring = HashRing.from_buckets(["q1", "q1", "q=2"], Release("3.8.9"))
    path = tmp_path / "ring.json"
    path.write_text(ring.to_json())
    for text, changed in (("q1=2", ring.unbind("q1", 2)), ("q=2=1", ring.unbind("q=2", 1))):
        change = answer("simulate", "--ring", str(path), "--unbind", text)["change"]
        assert change["shares"]["moved"] == ring.share_moved(changed)
    named = answer("simulate", "--bind", "q1=1", "--bind", "q=2=1", "--unbind", "q=2")["change"]
    assert named["ring"]["destinations"] == ["q1"]


def test_rules_are_those_of_the_release(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    release = Release("4.2.0", "mnesia")
    rows = answer("rules", "--release", "4.2.0", "--store", "mnesia")["rules"]
    assert [(row["rule"], row["what"]) for row in rows] == [
        (row.rule, row.what) for row in rule_rows(release)
    ]
    assert len(answer("rules")["rules"]) == len(rule_rows())
    assert "the integer itself is the seed" in shown("rules", "--release", "4.3.6")
    assert "the integer itself is the seed" not in shown("rules", "--release", "3.12.14")


def test_compare_finds_what_an_upgrade_moves(answer: Callable[..., Any]) -> None:
    releases = ("--release", "3.12.14", "--to-release", "4.3.6")
    sample = ("--pattern", "tenant-{n}", "--count", "300")
    document = answer("compare", *EQUAL, *releases, *sample, "--hash-header", "tenant", code=1)
    assert document["exact"] is None
    assert document["sample"]["keys"] == 300
    assert document["sample"]["moved"] == len(document["sample"]["moves"]) > 100
    assert answer("compare", *EQUAL, *releases, *sample)["sample"]["moved"] == 0


def test_compare_says_what_a_release_refuses(
    answer: Callable[..., Any], shown: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    path.write_text('[]\n["a"]\n')
    command = ("compare", *EQUAL, "--hash-header", "h", "--type", "array", "--keys", str(path))
    releases = ("--release", "3.13.7", "--to-release", "4.3.6")
    (move,) = answer(*command, *releases, code=1)["sample"]["moves"]
    assert (move["key"], set(move["before"])) == ("[]", {"refused"})
    assert "1 before alone: the header 'h' is an empty array" in shown(*command, *releases, code=1)


def test_a_sample_that_stays_hides_no_keys_that_move(answer: Callable[..., Any], tmp_path: Path) -> None:
    other = HashRing.from_bindings([("q1", 1), ("q2", 11)])
    stays = next(
        key for key in map(str, range(100)) if RING.destination_for(key) == other.destination_for(key)
    )
    path = tmp_path / "keys"
    path.write_text(stays)
    arguments = ("compare", *BIND, "--to-bind", "q1=1", "--to-bind", "q2=11", "--keys", str(path))
    document = answer(*arguments, code=1)
    assert document["sample"]["moved"] == 0
    assert document["exact"]["moved"] == RING.share_moved(other) > 0


def test_a_moved_share_counts_each_message(shown: Callable[..., str], tmp_path: Path) -> None:
    releases = ("--release", "3.12.14", "--to-release", "4.3.6", "--hash-header", "t")
    path = tmp_path / "keys"
    path.write_text("tenant-7\n" * 3 + "tenant-0\n")
    text = shown("compare", *EQUAL, *releases, "--keys", str(path), code=1)
    assert "moved   3 of 4 keys, 75.000%" in text


def test_holes_have_no_ideal(answer: Callable[..., Any], shown: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    path.write_text(HashRing.from_buckets([None, None, None, "q3", "q3"], Release("3.8.9")).to_json())
    rows = answer("simulate", "--ring", str(path))["shares"]
    assert [(row["destination"], row["share"], row["ideal"], row["skew"]) for row in rows] == [
        ("q3", 0.0, 1.0, -1.0),
        (None, 1.0, 0.0, 0.0),
    ]
    assert shown("simulate", "--ring", str(path)).splitlines()[-1].split() == [
        "(nowhere)",
        "3",
        "100.000%",
        "0.000%",
    ]
    text = shown("route", "--ring", str(path), "k")
    assert "(nowhere)" in text


def test_compare_two_rings_exactly(answer: Callable[..., Any], tmp_path: Path) -> None:
    other = HashRing.from_buckets(["q2", "q1"])
    path = tmp_path / "ring.json"
    path.write_text(other.to_json())
    ring = HashRing.from_bindings([("q1", 1), ("q2", 1)])
    for arguments in (("--to-ring", str(path)), ("--to-bind", "q2=1", "--to-bind", "q1=1")):
        document = answer("compare", *EQUAL, *arguments, code=1)
        assert document["exact"]["moved"] == ring.share_moved(other) == 1
    assert answer("compare", *EQUAL, "--to-bind", "q1=1", "--to-bind", "q2=1")["exact"]["moved"] == 0


def test_the_other_ring_has_the_rules_of_the_first_unless_told(answer: Callable[..., Any]) -> None:
    arguments = ("compare", *EQUAL, "--release", "3.9.0", "--to-bind", "q1=1", "--to-bind", "q2=1")
    assert answer(*arguments)["after"]["release"]["version"] == "3.9.0"
    assert answer(*arguments, "--to-release", "4.3.6")["after"]["release"]["version"] == "4.3.6"


def test_uniformity_shows_both_figures(answer: Callable[..., Any], shown: Callable[..., str]) -> None:
    document = answer("uniformity")
    expected = [row.result.statistic for row in uniformity_table()]
    assert [row["statistic"] for row in document["rows"]] == pytest.approx(expected, rel=1e-8)
    assert [row["published"] for row in document["rows"]][:3] == [0.5, 0.946, 2.939]
    own = answer("uniformity", "--pattern", "user-{n}", "--count", "5000")
    assert own["keys"] == 5000
    assert own["rows"][0]["statistic"] != document["rows"][0]["statistic"]
    text = shown("uniformity")
    assert "13.448" in text
    assert "0 of 19 statistics exceed" in text


def test_text_tells_the_release_and_where_the_ring_is_from(shown: Callable[..., str]) -> None:
    for command in (("route", *BIND, "k"), ("simulate", *BIND), ("compare", *BIND, "--to-release", "4.0.5")):
        text = shown(*command, *(() if "compare" in command else ("--release", "4.2.0", "--store", "mnesia")))
        assert "replayed from the bindings" in text
        assert ("4.2.0 (mnesia)" in text) or ("4.0.5 (mnesia?)" in text)
