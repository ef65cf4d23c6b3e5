"""``rabbit-chx compare``: the shares of a ring, and the keys that move to another ring or release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE
from rabbit_chx.analysis import simulate
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.reports import compare_report
from rabbit_chx.analysis.simulation import Change
from rabbit_chx.cli.command import (
    TEXT,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import (
    STDIN,
    TopologyInput,
    change_map,
    hashed_value,
    parse_bindings,
)
from rabbit_chx.cli.ring_argument import (
    RELEASE,
    HashingOptions,
    RingArgument,
    RingInput,
    RingOptions,
    code_of,
    parse_release,
    parse_ring,
    refuse_unpinned,
    say_ignored,
    say_unpinned,
)
from rabbit_chx.cli.samples import KeySource, StreamedSample, keys_option
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.options import SHARE
from rabbit_chx.routing import Release
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap

_HEAVIEST = 5

_LIMIT = replace(
    SHARE,
    label="limit",
    remedy="moved=SHARE, such as moved=0.2",
    parse=lambda text: SHARE.value_of(text.partition("moved=")[2]),
)


@command(
    example="rabbit-chx compare q1=1,q2=1,q3=2 --remove q1 --keys 'user-{1..1000}'",
    has_pictures=True,
    rules=Rules(needs={"--hash-header": "--keys"}, excludes=[("--to", "--add"), ("--to", "--remove")]),
)
def compare(
    *,
    ring: str = argument(type=TEXT, metavar="RING"),
    added: tuple[str, ...] = option(
        "--add",
        type=TEXT,
        metavar="QUEUE=WEIGHT",
        help="Bind this queue, after each --remove. Can be repeated.",
    ),
    removed: tuple[str, ...] = option(
        "--remove",
        type=TEXT,
        metavar="QUEUE[=WEIGHT]",
        help="Unbind this queue, or one of its bindings. Can be repeated.",
    ),
    to: str | None = option(type=TEXT, metavar="RING", help="The other ring."),
    to_release: str | None = option(
        metavar=RELEASE,
        help="The other RabbitMQ release; without another ring the buckets stay the same.",
    ),
    of_ring: RingOptions = options(RingOptions, without=("at",)),
    hashed: HashingOptions = options(HashingOptions, without=("hash_property",)),
    keys: KeySource | None = keys_option("A sample of keys, whose load is shown too"),
    allow: tuple[float, ...] = option(
        type=_LIMIT,
        metavar="moved=SHARE",
        help="The share of keys that may move, 0 to 1: the exit code is 4 if more do.",
    ),
) -> CommandResult:
    """Show the share of each queue of RING; with a change, another ring or another release, which keys move.

    All shares are exact, over all 2^21 seeds. A sample adds the load of its keys; a sample is required if two
    releases hash a header differently. Each --remove is applied first, then each --add, in the order given.

    With a topology file as RING and only --to-release, the command predicts the effects of an upgrade on each
    hash exchange of the file.

    The exit code is 4 if more keys move than --allow permits, or it is not known how many do, 1 if keys reach no queue, 3 if the answer
    depends on an order or a hashed value that is not known. Of a topology file with only --to-release it is 0 or 4.
    """
    first = parse_ring(ring)
    other = None if to is None else parse_ring(to)
    if other is None:
        of_ring.check(first)
    else:
        of_ring.check(first, other)

    is_whole = first.is_topology and first.exchange is None
    has_more = other or added or removed or keys or hashed.hash_header
    if is_whole and to_release and not has_more:
        return _upgrade(first, of_ring, to_release, allow)

    given = of_ring.read(first, parse_release(of_ring.release), warns=False)
    rules = parse_release(to_release)
    sides = [given]
    if other is not None:
        sides.append(of_ring.read_other(other, given, rules))
        refuse_unpinned(first, given, sides[1])
        refuse_unpinned(other, sides[1], given)
    elif rules is not None or added or removed:
        sides.append(given.changed_to(_change(given.source, removed, added)).under(rules))

    sides = [hashed.decide(side) for side in sides] if keys else sides
    if allow and len(sides) < 2:
        raise InputError(
            f"--allow moved={allow[0]:g} is a limit of what a change moves: pass --add, --remove, --to or --to-release, too"
        )

    signed = {"+": added, "-": removed, "to": filter(None, (to, to_release))}
    changes = [f"{sign} {text.partition('=')[0]}" for sign, texts in signed.items() for text in texts]
    about = of_ring.broker.live().address if first.is_live else ""
    title = ": ".join(filter(None, (ring, ", ".join(changes))))
    is_appended = bool(added) and not removed and rules is None
    is_change = bool(added or removed)
    return _compared(
        sides, hashed, keys, (title, about), is_change=is_change, is_appended=is_appended, allow=allow
    )


def _compared(
    sides: Sequence[RingInput],
    hashed: HashingOptions,
    keys: KeySource | None,
    headings: tuple[str, str],
    *,
    is_change: bool,
    is_appended: bool,
    allow: Sequence[float],
) -> CommandResult:
    """Return the report of one ring or two, with a sample if there is one."""
    from rabbit_chx.planning.proposals import find_least_moved

    is_known = all(side.is_determined for side in sides)
    keys = keys if is_known else None
    hashing = hashed.of(*sides, keys=keys is not None)
    ring = sides[0].source
    changed = sides[-1].source if len(sides) > 1 else None
    if keys is None:
        simulation = simulate(ring, hashing=hashing, changed=changed, is_appended=is_appended)
    else:
        batches = StreamedSample(keys, hashing, ring)
        with batches.name_errors():
            simulation = simulate(ring, iter(batches), hashing=hashing, changed=changed, heaviest=_HEAVIEST)
    change = simulation.change
    is_rehashed = hashing.hash_header is not None and change is not None and change.shares is None
    if is_rehashed and keys is None and is_known:
        versions = [side.source.release and side.source.release.version for side in sides]
        raise InputError(
            f"RabbitMQ {versions[0]} and {versions[1]} may hash the header {hashing.hash_header!r} "
            "differently: pass a sample, as --keys FILE or --keys 'user-{1..1000}'"
        )
    is_determined = is_known or (change is not None and change.moved is not None)
    learn = ""
    undetermined: Sequence[RingInput] = ()
    if not is_determined:
        undetermined = sides
        learn = next((side.learn for side in sides if side.learn), "")
    for doubt in dict.fromkeys(side.doubt for side in undetermined if side.doubt):
        say(f"not determined: {doubt}")
    least = find_least_moved(ring, changed) if is_change and is_known else None
    rules = _rules(ring, change, hashing) if change and change.shares is None else ()
    report = compare_report(
        simulation,
        is_determined=is_determined,
        least=least,
        rules=rules,
        headings=headings,
        learn=learn,
    )
    is_lost = any(side.loses(_places(side.source)) for side in sides)
    code = code_of(*undetermined, is_lost=is_lost)
    if change is None or code == ExitCode.PARTLY:
        return CommandResult(report, code)
    moved = [] if change.moved is None else [change.moved]
    if change.messages is not None and simulation.sample is not None:
        of_sample = change.messages.moved + change.refused_before + change.refused_after
        moved.append(of_sample / (simulation.sample.messages or 1))
    return CommandResult(report, _code_of_limit(moved, allow) or code)


def _places(source: KeyMap) -> Iterable[Place]:
    """Return where keys go; None is among it if some go nowhere."""
    return (source.shares() if source.has_shares else source.destinations) or (None,)


def _code_of_limit(moved: Iterable[float | None], allow: Sequence[float]) -> ExitCode:
    """Return the exit code of shares that move, None for one that is not known, by a limit, if there is one."""
    is_over = bool(allow) and any(share is None or share > min(allow) for share in moved)
    return ExitCode.REFUSED if is_over else ExitCode.DONE


def _change(source: KeyMap, removed: tuple[str, ...], added: tuple[str, ...]) -> KeyMap:
    source = change_map(source, removed, ())
    bindings = parse_bindings(added)
    if source.release is not None and source.kind == HASH_EXCHANGE:
        say_ignored(source.release, bindings, source)
    return change_map(source, (), bindings)


def _upgrade(
    ring: RingArgument, options: RingOptions, to_release: str, allow: Sequence[float]
) -> CommandResult:
    from rabbit_chx.planning.upgrade import predict_upgrade, upgrade_report

    file = ring.topology(options.broker.vhost or "/", options.variables)
    before, after = _releases(file, options.release, to_release)
    for exchange in file.topology.exchanges:
        say_unpinned(file, exchange)
    without_order = file.is_definitions
    commands = None if without_order or file.name == STDIN else file.name
    exchanges = predict_upgrade(file.topology, before, after, file=commands)
    if not exchanges:
        raise InputError(
            f"{file.name} does not contain an exchange of type x-consistent-hash or x-modulus-hash: pass another file"
        )
    source = f"{file.name}, which has no order of rings" if without_order else file.name
    code = _code_of_limit([exchange.moved for exchange in exchanges], allow)
    return CommandResult(upgrade_report(source, before, after, exchanges), code)


def _releases(file: TopologyInput, release: str | None, to_release: str) -> tuple[Release, Release]:
    """Return the release of a file, or the given one, and that of the upgrade."""
    known = file.topology.release
    before = parse_release(release)
    after = parse_release(to_release)
    if known is not None and before not in (None, known):
        say(f"{file.name} is of RabbitMQ {known}; it is compared as of {before}")
    before = before or known
    if before is None or after is None:
        raise InputError(f"{file.name} does not contain its release: pass --release, such as --release 3.12")
    return before, after


def _rules(ring: KeyMap, change: Change, hashing: Hashing) -> tuple[str, ...]:
    """Return the rule by which each release hashes the first key that moves; empty if the rule is the same, or a key is refused."""
    rules: list[str] = []
    for source in (ring, change.ring):
        exchange = hashing.ring_exchange(source)
        if exchange is None or not change.keys:
            return ()
        try:
            value = hashed_value(hashing, change.keys[0].key)
            rules.append(str(exchange.explain(**hashing.message(value)).rule))
        except (InputError, ChannelClosedError):
            return ()
    return tuple(rules) if len(set(rules)) > 1 else ()
