"""The pages: what each address shows of the state of the broker, as documents of the commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rabbit_chx.amqp.fields import FIELD_TYPES
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.reports import (
    Answer,
    compare_report,
    draw_map,
    hashes_text,
    route_report,
    smaller_moves,
)
from rabbit_chx.analysis.simulation import simulate
from rabbit_chx.broker.exchange_report import (
    ShownExchange,
    list_moduli,
    list_report,
    list_rings,
    show_report,
)
from rabbit_chx.checking.check import TopologyCheck
from rabbit_chx.checking.check_report import CheckReport
from rabbit_chx.cli.inputs import change_map, hashed_value, parse_bindings, parse_header_type
from rabbit_chx.cli.ring_argument import parse_release
from rabbit_chx.errors import InputError
from rabbit_chx.planning.proposals import find_least_moved
from rabbit_chx.planning.refusals import learn_command
from rabbit_chx.records.live_rings import make_members
from rabbit_chx.rendering.document import Document, Strip
from rabbit_chx.text import plural
from rabbit_chx.topology import Topology
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, RingMember

if TYPE_CHECKING:
    from rabbit_chx.routing.key_map import KeyMap
    from rabbit_chx.ui.state import BrokerState, VhostState

#: The most keys, and the most changes, of one address.
_MOST = 100


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        title: its title.
        document: what it is in JSON, and unless the template shows more, in HTML.
        template: its template.
        values: what else the template shows.
        status: its code.
    """

    title: str
    document: Document
    template: str = "base.html"
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


def link_to(vhost: str, exchange: str) -> str:
    """Return the address of the page of an exchange. Browsers take the paths . and .. for other ones."""
    if exchange in (".", ".."):
        return "/exchange?" + urlencode({"name": exchange, "vhost": vhost})
    return f"/exchange/{quote(exchange, safe='')}?{urlencode({'vhost': vhost})}"


def index_page(state: BrokerState) -> Page:
    """Return the page of all exchanges that hash."""
    rings = [
        row for name, vhost in state.vhosts.items() for row in list_rings(name, vhost.topology, vhost.check)
    ]
    moduli = [
        row for name, vhost in state.vhosts.items() for row in list_moduli(name, vhost.topology, vhost.check)
    ]
    checks = [vhost.check for vhost in state.vhosts.values()]
    document = list_report(list(state.vhosts), rings, moduli, checks=checks, all_vhosts=True)
    rows = [
        _row(name, vhost, exchange.name) for name, vhost in state.vhosts.items() for exchange in vhost.hashing
    ]
    values = {"rows": rows, "many": len(state.vhosts) > 1}
    return Page("Hash exchanges", document, "index.html", values)


def summary_of_findings(state: BrokerState) -> tuple[str, str]:
    """Return the number of all findings, which is the same on each page, and its class: ``good`` only if nothing is wrong or unchecked."""
    found = _found(state, None, None)
    look = "bad" if found.findings else "good" if found.is_complete else "warn"
    return f"This broker: {found.summary}", look


def exchange_links(state: BrokerState) -> list[tuple[str, str]]:
    """Return the address and the name of each exchange that hashes."""
    pairs = [(name, exchange.name) for name, vhost in state.vhosts.items() for exchange in vhost.hashing]
    return [(link_to(vhost, name), f"{name} (vhost {vhost})") for vhost, name in pairs]


def _row(name: str, vhost: VhostState, exchange: str) -> dict[str, Any]:
    shown = vhost.shown(exchange)
    assert shown.map is not None  # of a topology only what hashes is shown
    strip = next((each for each in draw_map(shown.map) if isinstance(each, Strip)), None)
    names = [] if strip is None else dict.fromkeys(filter(None, strip.names()))
    return {
        "name": exchange,
        "vhost": name,
        "link": link_to(name, exchange),
        "strip": strip if shown.map.underlying.buckets else None,
        "colours": {each: number % 20 for number, each in enumerate(names)},
        "sentence": shown.sentence,
        "findings": [finding.kind for finding in vhost.check.findings if finding.exchange == exchange],
        "unchecked": _unchecked(vhost, shown),
    }


def _unchecked(vhost: VhostState, shown: ShownExchange) -> str:
    """Return what of an exchange is not checked; empty if all of it is."""
    if shown.name not in (*vhost.check.exchanges, *vhost.check.without_ring):
        return "the exchange"
    parts = [] if shown.is_determined else ["the order"]
    parts += ["the consumers"] if vhost.check.consumers_not_checked else []
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class Question:
    """What an address asks about an exchange, by the names of the options of the commands."""

    keys: Sequence[str] = ()
    key_type: str = ""
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    to_release: str = ""

    def __post_init__(self) -> None:
        """Refuse more than a page shows."""
        for name, values in (("key", self.keys), ("add", self.added), ("remove", self.removed)):
            if len(values) > _MOST:
                raise InputError(f"{name} is given {len(values)} times: pass at most {_MOST}")


def exchange_page(state: BrokerState, vhost: str, name: str, asked: Question) -> Page:
    """Return the page of an exchange, with the answers to what is asked.

    Raises:
        NotFoundError: there is no such exchange.
        MismatchError: it does not hash.
        InputError: what is asked is not valid.
    """
    seen = state.vhost(vhost)
    shown = seen.shown(name)
    assert shown.map is not None
    document = report = show_report({name: shown})
    arguments = dict(shown.arguments or {})
    found = _found(state, vhost, name)
    values: dict[str, Any] = {
        "vhost": vhost,
        "where": f"vhost {vhost}",
        "asked": asked,
        "report": report,
        "lead": shown.sentence,
        "findings": f"{plural(len(found.findings), 'finding')}." if found.findings else "",
        "unchecked": _unchecked(seen, shown),
        "types": FIELD_TYPES,
        "has_types": "hash-header" in arguments,
        "hashes": hashes_text(arguments).capitalize(),
        "has_slots": shown.map.slots is not None,
        "routed": None,
        "changed": None,
        "file": "",
        "found": Document("check", list(found.blocks())),
        "what_was_checked": Document("check", [found.facts()]),
    }
    off = [finding.message for _, finding in found.findings if finding.kind == "plugin-off"]
    if off and any(asked.keys):
        raise InputError(off[0])
    if any(asked.keys):
        key_map = shown.map
        learn = (
            "" if key_map.has_key_destinations else learn_command({name: key_map}, shown.ways_to_learn) or ""
        )
        document, answers = _route(key_map, arguments, asked, learn)
        places = [(answer.key, answer.destination) for answer in answers]
        values |= {"routed": document, "places": places}
    if any(asked.added) or any(asked.removed) or asked.to_release:
        document, changed, less = _change(shown.map, asked, name)
        values |= {
            "changed": document,
            # The order of the lines would be that of a list, not that of the ring.
            "file": _file_lines(name, changed) if shown.map.has_key_destinations else "",
            "moved": document.title,
            "less": less,
        }
    return Page(name, document, "exchange.html", values)


def _route(
    key_map: KeyMap, arguments: Mapping[str, str], asked: Question, learn: str
) -> tuple[Document, list[Answer]]:
    header = arguments.get("hash-header")
    _, type_ = parse_header_type(f"{header}:{asked.key_type}" if header and asked.key_type else header)
    hashing = Hashing(header, arguments.get("hash-property"), field_type=type_)
    exchange = hashing.exchange(key_map.underlying)
    ring_exchange = hashing.ring_exchange(key_map.underlying)
    answers = []
    for key in asked.keys:
        message = hashing.message(hashed_value(hashing, key))
        if not key_map.has_key_destinations:
            answers.append(Answer.unknown(key))
            continue
        how = None if ring_exchange is None else ring_exchange.explain(**message)
        place = exchange.route(**message) if how is None else how.destination
        answers.append(Answer.of(key, key_map, place, {}, explanation=how))
    return route_report(key_map, answers, learn=learn), answers


def _change(key_map: KeyMap, asked: Question, name: str) -> tuple[Document, KeyMap, str]:
    added = parse_bindings([text.strip() for text in ",".join(asked.added).split(",") if text.strip()])
    removed = [text.strip() for text in ",".join(asked.removed).split(",") if text.strip()]
    changed = change_map(key_map, removed, added)
    is_known = key_map.has_key_destinations and changed.has_key_destinations
    least = find_least_moved(key_map, changed) if is_known and (added or removed) else None
    release = parse_release(asked.to_release or None)
    if release is not None:
        changed = changed.with_release(release)
    is_appended = bool(added) and not removed and release is None
    simulation = simulate(key_map, changed=changed, is_appended=is_appended)
    is_determined = is_known or (simulation.change is not None and simulation.change.moved is not None)
    document = compare_report(simulation, is_determined=is_determined, least=least, headings=(name, ""))
    change = simulation.change
    less = smaller_moves(least or (), change.shares.moved) if change and change.shares else ()
    return document, changed, ", ".join(f"{name} {text}" for name, text in less)


def _file_lines(name: str, key_map: KeyMap) -> str:
    """Return the lines of a topology file with a ring; empty if it has slots."""
    if key_map.kind != HASH_EXCHANGE:
        return ""
    bound = key_map.bindings
    members = make_members(key_map.buckets) if bound is None else (RingMember(*each) for each in bound)
    return Topology(exchanges=(ExchangeDefinition(name, HASH_EXCHANGE, ring=tuple(members)),)).to_toml()


def findings_page(
    state: BrokerState, vhost: str | None, exchange: str | None, kinds: Sequence[str], file: str | None
) -> Page:
    """Return the page of all findings, or of those of a vhost, of an exchange or of some kinds."""
    every = dict.fromkeys(finding.kind for seen in state.vhosts.values() for finding in seen.check.findings)
    choices = [(f"/findings?{urlencode({'kind': kind})}", kind) for kind in every]
    if kinds or exchange or vhost:
        choices.insert(0, ("/findings", "all"))
    if file is not None:
        choices.append(("/plan", f"differences from {file}"))
    return Page("Findings", _found(state, vhost, exchange, kinds).document(), values={"choices": choices})


def _found(
    state: BrokerState, vhost: str | None, exchange: str | None, kinds: Sequence[str] = ()
) -> CheckReport:
    def asked(found: TopologyCheck) -> TopologyCheck:
        if exchange is not None:
            found = found.of_exchange(exchange)
        if not kinds:
            return found
        return replace(found, findings=tuple(each for each in found.findings if each.kind in kinds))

    checks = {name: asked(seen.check) for name, seen in state.vhosts.items() if vhost in (None, name)}
    exchanges = () if exchange is None else (exchange,)
    return CheckReport(state.address, checks, exchanges, state.time_s, all_vhosts=vhost is None)


def consumers_choices(state: BrokerState) -> list[tuple[str, str]]:
    """Return the address and the name of each exchange whose queues have consumers."""
    return [
        (
            "/consumers?" + urlencode({"exchange": exchange.name, "vhost": name}),
            f"{exchange.name} ({plural(count, 'consumer')})",
        )
        for name, seen in state.vhosts.items()
        for exchange in seen.hashing
        if (count := seen.shown(exchange.name).consumers)
    ]
