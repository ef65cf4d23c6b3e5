"""``rabbit-chx route``: the destinations of keys, their explanation, and keys that reach a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, get_args

from rabbit_chx.analysis import keys_for
from rabbit_chx.analysis.key_routing import Hashing, NoKeyFoundError, Refused
from rabbit_chx.analysis.reports import Answer, KeysFound, SourceFields, answers_batch, route_report
from rabbit_chx.cli.command import (
    TEXT,
    CommandResult,
    Rules,
    argument,
    command,
    option,
    options,
)
from rabbit_chx.cli.inputs import (
    STDIN,
    bound_destination,
    hashed_value,
    parse_header,
    parse_property,
)
from rabbit_chx.cli.ring_argument import (
    HashingOptions,
    RingInput,
    RingOptions,
    Routing,
    code_of,
    parse_ring,
    say_conditions,
)
from rabbit_chx.cli.samples import KeyBatch, KeySource, keys_option, parse_keys
from rabbit_chx.errors import ChannelClosedError, InputError, RabbitChxError
from rabbit_chx.options import one_of
from rabbit_chx.rendering.document import Batch, Document, Lines
from rabbit_chx.result_fields import ABSENT
from rabbit_chx.routing.key_map import KeyMap

_ROUTING = one_of(*get_args(Routing))


@command(
    example="rabbit-chx route q1=1,q2=10 user-42 user-43 --release 4.3.6",
    rules=Rules(
        excludes=[
            ("KEY", "--keys"),
            *(("--reaching", name) for name in ("--explain", "--header", "--property")),
        ]
    ),
)
def route(
    *,
    ring: str = argument(type=TEXT, metavar="RING"),
    keys: tuple[str, ...] = argument(nargs=-1, type=TEXT, metavar="[KEY]..."),
    sample: KeySource | None = keys_option("Keys instead of KEYs"),
    reaching: str | None = option(
        type=TEXT,
        metavar="QUEUE",
        help="Find the keys that reach this queue, or slot as exchange:NAME; of canary-0, canary-1 and so on the first.",
    ),
    of_ring: RingOptions = options(RingOptions),
    routing: Routing | None = option(
        is_rare=True,
        section="Ring",
        type=_ROUTING,
        help="How clients route to a super stream: by the hash of the clients for Java, .NET and Go, by that of rstream for Python, or by its "
        "binding keys, as AMQP clients do.  [default: hash]",
    ),
    hashed: HashingOptions = options(HashingOptions),
    headers: tuple[str, ...] = option(
        "--header",
        section="Message",
        type=TEXT,
        metavar="NAME[:TYPE]=VALUE",
        help="A header of the complete message. Can be repeated.",
    ),
    properties: tuple[str, ...] = option(
        "--property",
        is_rare=True,
        section="Message",
        type=TEXT,
        metavar="NAME=VALUE",
        help="A property of the complete message: message_id, correlation_id or timestamp. Can be repeated.",
    ),
    explain: bool = option(
        section="Output",
        help="Show the hashed term, its hash, the seed, the walk and the rule.",
    ),
) -> CommandResult:
    """Show the destination of each KEY.

    A KEY is the hashed value: the routing key, or with --hash-header or --hash-property the value of
    that header or property. With --header or --property the options describe a whole message, and a KEY is
    its routing key.

    --keys reads the KEYs from a file; a single - reads them from stdin. Each answer is then written
    immediately: a line with tabs between the fields, or with --output json a JSON document.

    --reaching finds keys that reach a queue, for tests and canaries: all of the KEYs or of --keys, or without
    both one of its own. Each is written as soon as it is found.

    The exit code is 1 if a key reaches no queue, 3 if the order of the ring or the hashed value is not known, 70 if no key
    reaches the queue.
    """
    if keys == (STDIN,):
        sample = parse_keys(STDIN)
        keys = ()
    given = hashed.decide(of_ring.read_only(parse_ring(ring)).routed_by(routing))
    source = given.source
    hashing = hashed.of(given)
    if reaching is not None:
        return _find_keys(given, hashing, reaching, keys, sample)
    message_parts = _message_parts(headers, properties, hashing) if headers or properties else {}
    if not message_parts and not keys and sample is None:
        raise InputError("keys are not given: pass a KEY, or --keys FILE, or - to read keys from stdin")
    exchange = hashing.exchange(source.underlying)
    ring_exchange = hashing.ring_exchange(source.underlying)
    if explain and ring_exchange is None:
        raise InputError(f"--explain explains rings, and {ring:.80} is of type {source.kind}: leave it out")

    def answer(key: str) -> Answer:
        if not given.is_determined:
            return Answer.unknown(key)
        by_parts = {"routing_key": key, **message_parts}
        message = by_parts if message_parts else hashing.message(hashed_value(hashing, key))
        explanation = ring_exchange.explain(**message) if explain and ring_exchange else None
        place = explanation.destination if explanation else exchange.route(**message)
        return Answer.of(key, source, place, given.faults, explanation=explanation)

    if sample is None:
        answers = [answer(key) for key in keys or ("",)]
        verdicts = Counter(_verdict(each, given) for each in answers)
        return CommandResult(
            route_report(source, answers, learn=given.learn),
            code_of(given, is_lost=verdicts["lost"] > 0),
        )
    one_by_one = explain or message_parts or ring_exchange is None or given.doubt
    in_batch = None if one_by_one else partial(_route_in_batch, given=given, ring=source, hashing=hashing)
    say_conditions({given.exchange or ring: source})
    batches = _route(sample, answer, in_batch)
    verdicts = Counter[str]()
    return CommandResult(
        batches=_count_verdicts(batches, given, verdicts),
        finish=lambda: code_of(given, is_lost=verdicts["lost"] > 0),
    )


def _find_keys(
    given: RingInput, hashing: Hashing, reaching: str, keys: Sequence[str], sample: KeySource | None
) -> CommandResult:
    """Return the keys that reach a queue, each of which is shown when it is found."""
    source = given.source
    wanted = bound_destination(reaching, given.source)
    fields = SourceFields.of(source)
    if not given.is_determined:
        unknown = KeysFound(fields, wanted, determined=False, learn=given.learn, keys=None)
        return CommandResult(Document("keys", [], unknown), code_of(given))
    among = [keys] if keys else None if sample is None else (batch.keys for batch in sample.batches())

    def value(key: str) -> Any:
        return hashed_value(hashing, key)

    def found() -> Iterator[str]:
        is_found = False
        try:
            reached = keys_for(source, wanted, hashing=hashing, read=value, among=among)
            for key in reached if among else islice(reached, 1):
                yield key
                is_found = True
        except NoKeyFoundError as error:
            raise RabbitChxError(str(error)) from None  # the search failed: not a usage error
        if not is_found:
            raise RabbitChxError(f"none of the keys reaches {reaching}: pass others")

    say_conditions({given.exchange or reaching: source})
    found_keys = found()
    result = KeysFound(fields, wanted, determined=True, learn=ABSENT, keys=found_keys)
    return CommandResult(Document("keys", [Lines(found_keys)], result), code_of(given))


def _verdict(answer: Answer, given: RingInput) -> str:
    """Return ``lost`` if the message of an answer reaches no queue, or its slot is not bound to exactly one."""
    if not answer.is_known:
        return ""
    return "lost" if answer.fault or given.loses([answer.place]) else ""


def _count_verdicts(
    batches: Iterable[list[Answer]], given: RingInput, verdicts: Counter[str]
) -> Iterator[Batch]:
    origin = given.source.order_fields() if given.source.hashing.has_order else None
    for batch in batches:
        verdicts.update(_verdict(answer, given) for answer in batch)
        yield answers_batch(batch, origin)


def _message_parts(headers: tuple[str, ...], properties: tuple[str, ...], hashing: Hashing) -> dict[str, Any]:
    if (type_ := hashing.field_type) is not None:
        raise InputError(
            f"--hash-header {hashing.hash_header}:{type_} is the type of a KEY, but with --header or --property a KEY is the "
            f"routing key: write --header {hashing.hash_header}:{type_}=VALUE"
        )
    pairs = list(map(parse_property, properties))
    named = dict(pairs)
    if len(named) < len(pairs):
        raise InputError(
            f"a property is given twice among {', '.join(name for name, _ in pairs)}: pass it once"
        )
    return {"headers": list(map(parse_header, headers)), "properties": named}


def _route_in_batch(batch: KeyBatch, given: RingInput, ring: KeyMap, hashing: Hashing) -> list[Answer]:
    """Answer all keys of a batch at once; fewer if one of them cannot be routed."""
    try:
        places = hashing.route_all([hashed_value(hashing, key) for key in batch.keys], ring.underlying)
    except InputError:
        return []
    return [
        Answer.of(key, given.source, place, given.faults)
        for key, place in zip(batch.keys, places, strict=True)
        if not isinstance(place, Refused)
    ]


def _route(
    sample: KeySource, answer: Callable[[str], Answer], in_batch: Callable[[KeyBatch], list[Answer]] | None
) -> Iterator[list[Answer]]:
    """Yield the answers of each batch, or where there are fewer, one by one, up to the error of a key."""
    for batch in sample.batches():
        answers = in_batch(batch) if in_batch else []
        if answers and len(answers) == len(batch.keys):
            yield answers
            continue
        for number, key in zip(batch.numbers, batch.keys, strict=True):
            try:
                yield [answer(key)]
            except (InputError, ChannelClosedError) as error:
                raise type(error)(f"{batch.unit} {number} of {sample.name}: {error}") from None
