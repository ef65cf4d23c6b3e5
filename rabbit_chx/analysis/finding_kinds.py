"""The kinds of findings: the one list that commands, metrics and pages read.

Each kind, as in JSON, in the label `kind` of ``rabbit_chx_check_findings``, and after ``--ignore``, has what is found, as the page of the
command says it, in Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

#: ``error``: messages are lost, wait for nobody, or reach another queue than they should. ``warning``: they may, or will at the next event.
#: ``note``: nothing happens to messages, and it is worth knowing; it does not change the exit code of ``check``.
Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

#: The kinds of ``check``, in the order of the metrics.
CHECK_KINDS: Mapping[str, str] = {
    "ghost-bucket": "buckets of a destination that is not bound; 4.3.6 leaves them if a restart ends an exclusive queue",
    "plugin-off": "an exchange whose plugin is not enabled: the broker refuses every publish to it",
    "hole": "buckets without a destination, or an exchange to which nothing is bound",
    "order": "slots that are not in the order of their numbers",
    "second-binding": "a destination with several bindings, of which one unbind removes all buckets; or a slot with two queues, which both get each message",
    "silent-binding": "a bound destination without keys",
    "polarized": "an exchange that hashes behind one that hashes the same value: its queues may get other shares than their weights, and some may get none",
    "transient-destination": "an exclusive, auto-delete or non-durable queue; the share moves when it ends",
    "transient-exchange": "an exchange that a restart of the broker, or its last unbind, deletes with its bindings",
    "sharding-policy": "a direct, fanout, topic or headers exchange that a policy shards: all its shards get a copy of each message",
    "missing": "a slot without a queue, or an alternate exchange that leads to no queue",
    "unexpected": "messages in a parking queue",
    "different": "a number of buckets that differs from the weight, or other buckets than the bindings make; or a slot without an alternate "
    "exchange, whose messages are lost during a hand-over",
    "unroutable-share": "the exact share of keys that reach no queue",
    "down-destination": "a queue that the broker reports as down, as its node does not run",
    "expiring-destination": "a queue with `x-message-ttl` or `x-expires`, by argument or policy",
    "dropping-destination": "a queue with a length limit that drops its oldest messages; before 4.0 a quorum queue with a negative `x-delivery-limit`, which "
    "drops each message that is returned",
    "order-breaking": "a queue with priorities; from 4.3 on one with delayed retry, a consumer timeout below 30 minutes (RabbitMQ's default; the time "
    "of a handler is not known), or waiting messages of several priorities",
    "odd-member": "a queue whose type or arguments differ from most others",
    "ignored-argument": "an argument of the exchange or of a queue that the broker's release accepts and ignores, as `x-hash-on` of another product: "
    "what it is meant for does not happen",
    "dead-letter": "a queue whose dead-letter exchange does not exist, or has no binding: its rejected, expired or dropped messages are lost",
    "alternate": "an alternate exchange that does not exist, or has no binding",
    "no-consumer": "a queue in which messages wait, and that has no consumer",
    "nobody-active": "a queue that has consumers of which none is active; with unacknowledged messages, the broker waits for the previous consumer",
    "no-single-active-consumer": "a queue of a group in which several consumers may handle messages of one key at the same time",
    "other-consumer": "a consumer outside the group that consumes the exchange",
    "priority-ignored": "a queue of a group on which the broker ignores the priorities of consumers: before 4.0, and on classic queues",
    "uneven-traffic": "a queue that got far more of the messages of the last minute than its share of the keys",
    "unbound-queue": "a queue whose name differs from those of the exchange's queues in its number only, and that is bound to nothing",
    "odd-object": "in a comparison with a file: objects of the broker that no client can declare or name, or of a definitions file that RabbitMQ imports "
    "otherwise than written",
}
#: What some of them mean in a comparison with a topology file, too.
WITH_FILE: Mapping[str, str] = {
    "order": "the ring has another order than the file",
    "missing": "an object, binding or member of the file does not exist",
    "unexpected": "a member is not in the file; or an object whose name the file `owns`, or a binding of an exchange that it owns",
    "different": "an object differs from the file; without a destination, the whole ring or the slots",
}

#: The kinds of ``verify --trace`` and ``verify --observed``, beside those of a ring by itself.
VERIFY_KINDS: Mapping[str, str] = {
    "contradicted": "keys that reached other queues than in the ring, or that contradict each other: the ring is then not determined",
    "one-key": "more than half of at least 100 messages have one key, so one queue gets them all; the file has a row for each message",
    "few-keys": "more than half of at least 100 messages have fewer keys than the exchange has members, so their queues get most messages",
}

#: The kinds of the shards of ``show``.
SHARD_KINDS: Mapping[str, str] = {
    "missing": "shards of the policy that do not exist",
    "node-away": "shards whose node does not run",
    "surplus": "shards that are not the policy's and still get messages",
    "unbound": "shards that are not bound, so they get no messages",
    "unconsumed": "shards without a consumer",
    "unordered": "the order of the shards, and so the shard of a key, is not known",
}

#: The kinds that the statistics of the broker show, which are left out where consumers are not checked.
USAGE_KINDS = frozenset(
    {
        "no-consumer",
        "nobody-active",
        "no-single-active-consumer",
        "other-consumer",
        "priority-ignored",
        "uneven-traffic",
    }
)
_ERRORS = frozenset(
    {
        "ghost-bucket",
        "plugin-off",
        "hole",
        "order",
        "missing",
        "different",
        "unroutable-share",
        "down-destination",
        "no-consumer",
        "nobody-active",
        "contradicted",
        "node-away",
    }
)
_NOTES = frozenset({"odd-member", "odd-object"})


def severity_of(kind: str) -> Severity:
    """Return how severe a finding of a kind is."""
    if kind in _ERRORS:
        return "error"
    return "note" if kind in _NOTES else "warning"
