"""What no release of RabbitMQ takes, and what a file cannot mean, is told with a remedy."""

from __future__ import annotations

import pytest
from topologies import problems_in

from rabbit_chx import Topology

HASH = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n'
QUEUE = '[[queues]]\nname = "q"\n'
LONG = "é" * 127 + "abc"


def queue(type_: str, *arguments: str) -> str:
    return f'{QUEUE}type = "{type_}"\narguments = {{ {", ".join(arguments)} }}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f'[[queues]]\nname = "{LONG}"', "queues[0].name: the text has 257 bytes: AMQP carries at most 255; write a shorter one"),
        (f'[[exchanges]]\nname = "{LONG}"', "exchanges[0].name: the text has 257 bytes"),
        (f'[[bindings]]\nsource = "{LONG}"\nqueue = "q"', "bindings[0].source: the text has 257 bytes"),
        (f'[[bindings]]\nsource = "x"\nqueue = "{LONG}"', "bindings[0].queue: the queue name"),
        (f'[[bindings]]\nsource = "x"\nqueue = "q"\nrouting_key = "{LONG}"', "bindings[0].routing_key: the text has 257 bytes"),
        (f'{HASH}ring = [{{ queue = "{LONG}" }}]', "exchanges[0].ring[0].queue: the queue name"),
        (f'[[policies]]\nname = "{LONG}"\npattern = ""\ndefinition = {{}}', "policies[0].name: the text has 257 bytes"),
        (f'[[exchanges]]\nname = "x"\n[[bindings]]\nsource = "x"\nexchange = "{LONG}"', "257 bytes"),
        ('[[queues]]\nname = "a\\nb"', "queues[0].name: RabbitMQ takes line ends out of names"),
        ('[[queues]]\nname = "amq.mine"', "queues[0].name: names that begin with amq. are the broker's own; write another name, or owner = \"external\""),
        ('[[exchanges]]\nname = "amq.mine"', "exchanges[0].name: names that begin with amq. are the broker's own"),
        (f"{QUEUE}{QUEUE}", "queues[1].name: this queue is in the file already, as queues[0]; write each one once"),
        (f'[[queues]]\nname = "q.{{1..9}}"\n{QUEUE.replace("q", "q.7", 2).replace("[[q.7ueues", "[[queues")}', "queues[1].name: this queue is in the file already"),
        ('[[queues]]\nname = "q"\narguments = { a = "{1..3}" }', "queues[0].name: this entry stands for the same queue more than once"),
        ('[[exchanges]]\nname = "x"\n[[exchanges]]\nname = "x"\ntype = "topic"', "exchanges[1].name: this exchange is in the file already"),
        ('[[bindings]]\nsource = "x"\nqueue = "q"\n[[bindings]]\nsource = "x"\nqueue = "q"', "bindings[1].source: this binding is in the file already"),
        ('[[policies]]\nname = "p"\npattern = ""\ndefinition = {}\n' * 2, "policies[1].name: this policy is in the file already"),
        (f'{HASH}ring = [{{ queue = "a.{{1..3}}" }}, {{ queue = "a.2", weight = 5 }}]', "exchanges[0].ring[1].queue: queue a.2 is a member already; write each member once; a weight gives it more buckets"),
        (f'{HASH}ring = [{{ exchange = "a" }}, {{ exchange = "a" }}]', "exchanges[0].ring[1].exchange: exchange a is a member already"),
        (f'{HASH}ring = [{{ queue = "a.{{1..3}}", weight = 9000000 }}]', "exchanges[0].ring: the weights add up to 27000000"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a.{{1..3}}" }}]', "exchanges[0].slots: 2 slots are not enough for 3 members"),
        (f'{HASH}slots = 1\nmembers = [{{ queue = "a.{{1..3}}" }}]', "exchanges[0].slots: 1 slot is not enough for 3 members"),
        (f"{HASH}slots = 4\nmembers = []", "exchanges[0].members: the slots have no queue; write one member at least"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}, {{ queue = "a" }}]', "exchanges[0].members[1].queue: queue a is a member already; write each member once; a weight gives it more slots"),
        (f'{HASH}slots = 9\nmembers = [{{ queue = "a" }}, {{ queue = "b", weight = 9 }}]', "exchanges[0].members[0].weight: 1 of 10 is less than one of 9 slots; write more slots, or a larger weight"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0] }}, {{ queue = "b" }}]', "exchanges[0].members[1].slots: if one member lists its slots, all do, and each of 0 to 1 is there once; list the slots of b in x too, or give weights to all members"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0] }}, {{ queue = "b", slots = [0, 1] }}]', "exchanges[0].members[1].slots: slot 0 of x is at a and at b; write it at one of them"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..02"] }}, {{ queue = "b", slots = ["02..03"] }}]', "exchanges[0].members[1].slots: slot 2 of x is at a and at b; write it at one of them"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a.{{1..2}}", slots = ["00..03"] }}]', "exchanges[0].members[0].slots: this entry stands for 2 queues, and a slot of x has one queue; write an entry with its own `slots` for each queue"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00-03"] }}]', 'exchanges[0].members[0].slots: "00-03" is not a slot: a slot is a whole number, and a range is two of them; write a number as 37 or "37", and a range as "00..11"'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["03..00"] }}]', 'exchanges[0].members[0].slots: the range "03..00" counts down; write "00..03"'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..99999"] }}]', 'exchanges[0].members[0].slots: "00..99999" is out of range; write slots from 0 to 16383'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..02", 2] }}]', "exchanges[0].members[0].slots: slot 2 is in this list twice; write each slot once"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0, 2] }}]', "exchanges[0].members[0].slots: x has the slots 0 to 1; take 2 out of a, or write more slots"),
        (f'{HASH}slots = 99\nmembers = [{{ queue = "a", slots = [0] }}]', "give slot 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... to a member"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "x.park" }}]', "exchanges[0].members[0].queue: x.park is the parking queue of x; write another queue"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[exchanges]]\nname = "x.slot.03"', "exchanges[1].name: the slots of x make an exchange x.slot.03 of their own; give this one another name"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[exchanges]]\nname = "x.park"', "exchanges[1].name: the slots of x make an exchange x.park of their own"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[bindings]]\nsource = "x.slot.03"\nqueue = "b"', "bindings[0].source: the slots of x make the bindings of x.slot.03; write `members` of x instead"),
        (f'{HASH.replace(chr(34) + "x" + chr(34), chr(34) + "x" * 249 + chr(34))}slots = 4\nmembers = [{{ queue = "a" }}]', "exchanges[0].name: the last slot exchange would be xxx"),
        (f'{HASH}ring = []\narguments = {{ hash-header = "a", hash-property = "message_id" }}', "exchanges[0].arguments: hash-header and hash-property exclude each other; write only one"),
        (f"{HASH}ring = []\narguments = {{ hash-header = 5 }}", "exchanges[0].arguments.hash-header: a header is named by text"),
        (f'{HASH}ring = []\narguments = {{ hash-property = "message-id" }}', 'exchanges[0].arguments.hash-property: only correlation_id, message_id and timestamp can be hashed; write "message_id"'),
        (f'{HASH}ring = []\narguments = {{ hash-property = "app_id" }}', "can be hashed; write one of them, or use hash-header"),
        (f"{HASH}ring = []\narguments = {{ hash-property = 5 }}", "can be hashed"),
        (f"{HASH}ring = []\narguments = {{ alternate-exchange = 5 }}", "exchanges[0].arguments.alternate-exchange: an exchange is named by text"),
        (f'{HASH}ring = []\n[[bindings]]\nsource = "x"\nqueue = "q"', "bindings[0].source: x is of type x-consistent-hash, and the order of its bindings decides; write the destination as a member of its `ring`"),
        ('[[bindings]]\nsource = "amq.headers"\nqueue = "q"\narguments = { x-match = "al" }', "bindings[0].arguments.x-match: x-match is all, any, all-with-x or any-with-x"),
        ('[[exchanges]]\nname = "x"\ntype = "headers"\n[[bindings]]\nsource = "x"\nqueue = "q"\narguments = { x-match = 5 }', "x-match is all, any"),
        (f'{QUEUE}type = "quorum"\nexclusive = true', 'queues[0].exclusive: a quorum queue is never exclusive; leave `exclusive` out, or write type = "classic"'),
        (f'{QUEUE}type = "quorum"\ndurable = false', "queues[0].durable: a quorum queue is always durable"),
        (f'{QUEUE}type = "stream"\nauto_delete = true', "queues[0].auto_delete: a stream is never deleted automatically"),
        (f'{QUEUE}exclusive = true\narguments = {{ x-queue-type = "quorum" }}', "queues[0].exclusive: a quorum queue"),
        (queue("classic", 'x-queue-type = "quorum"'), "queues[0].arguments.x-queue-type: `type` says another type; leave x-queue-type out"),
        (queue("quorum", 'x-queue-type = "classic"'), "queues[0].arguments.x-queue-type: `type` says another type"),
        (f'{QUEUE}arguments = {{ x-queue-type = "quroum" }}', "queues[0].arguments.x-queue-type: a queue's type is classic, quorum or stream; write type = \"quorum\" instead"),
        (queue("classic", 'x-message-ttl = "60s"'), "queues[0].arguments.x-message-ttl: x-message-ttl is a whole number of milliseconds from 0; write such a number, without quotes"),
        (queue("classic", "x-message-ttl = 1.5"), "x-message-ttl is a whole number"),
        (queue("quorum", "x-message-ttl = -1"), "x-message-ttl is a whole number"),
        (queue("classic", "x-expires = 0"), "x-expires is a whole number of milliseconds from 1"),
        (queue("quorum", "x-max-length = true"), "x-max-length is a whole number from 0"),
        (queue("stream", 'x-max-length-bytes = "1GB"'), "x-max-length-bytes is a whole number from 0"),
        (queue("classic", "x-max-priority = 256"), "x-max-priority is a whole number from 0 to 255"),
        (queue("quorum", "x-max-priority = 5"), "a quorum queue has no x-max-priority; leave it out"),
        (queue("quorum", 'x-queue-mode = "lazy"'), "a quorum queue has no x-queue-mode"),
        (queue("stream", "x-message-ttl = 5"), "a stream has no x-message-ttl"),
        (queue("stream", "x-single-active-consumer = true"), "a stream has no x-single-active-consumer"),
        (queue("stream", 'x-max-age = "7 days"'), 'x-max-age is a number with a unit: Y, M, D, h, m or s; write it as "7D"'),
        (queue("stream", "x-max-age = 7"), "x-max-age is a number with a unit"),
        (queue("classic", "x-dead-letter-exchange = 5"), "x-dead-letter-exchange is text"),
        (queue("classic", 'x-dead-letter-routing-key = "k"'), "a routing key for dead letters needs an exchange for them; write x-dead-letter-exchange too"),
        (queue("classic", 'x-overflow = "drop"'), "x-overflow is drop-head, reject-publish or reject-publish-dlx"),
        (queue("classic", 'x-single-active-consumer = "true"'), "x-single-active-consumer is true or false"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_problem(text: str, problem: str) -> None:
    found = problems_in(text)
    assert len(found) == 1, found
    assert problem in found[0]


@pytest.mark.parametrize(
    "text",
    [
        f'[[queues]]\nname = "{LONG[:-2]}"\n',
        '[[queues]]\nname = "amq.theirs"\nowner = "external"',
        '[[bindings]]\nsource = "amq.topic"\nexchange = "amq.fanout"',
        '[[bindings]]\nsource = "x"\nqueue = "q"\n[[bindings]]\nsource = "x"\nexchange = "q"',
        '[[bindings]]\nsource = "x"\nqueue = "q"\n[[bindings]]\nsource = "x"\nqueue = "q"\narguments = { a = 1 }',
        '[[bindings]]\nsource = "other"\nqueue = "q"\narguments = { x-match = "al" }',
        f'{HASH}ring = [{{ queue = "a" }}, {{ exchange = "a" }}]\narguments = {{ hash-property = "timestamp" }}',
        '[[exchanges]]\nname = "x"\narguments = { hash-header = 5 }',
        queue("quorum", "x-delivery-limit = 5", 'x-queue-type = "quorum"', "x-expires = 1"),
        queue(
            "classic",
            "x-max-priority = 255",
            'x-dead-letter-exchange = ""',
            'x-dead-letter-routing-key = "k"',
        ),
        queue("stream", 'x-max-age = "7D"', "x-max-length-bytes = 0"),
        queue(
            "classic", 'x-unknown = "kept"', "x-single-active-consumer = false", 'x-overflow = "drop-head"'
        ),
    ],
)
def test_what_the_broker_takes_is_no_problem(text: str) -> None:
    assert problems_in(text) == []


def test_an_entry_of_a_thousand_says_each_mistake_once() -> None:
    assert len(problems_in('[[queues]]\nname = "amq.{1..1000}"\ntype = "quorum"\nexclusive = true')) == 2


def test_destinations_that_nobody_lists_are_someone_elses() -> None:
    text = f'{HASH}ring = [{{ queue = "theirs" }}, {{ exchange = "x" }}]\n[[bindings]]\nsource = "amq.topic"\nqueue = "q.10"\n'
    topology = Topology.from_toml(text)
    assert topology.unlisted == ("q.10", "theirs")


def test_a_policy_that_shards_a_hash_exchange_stands_in_for_its_ring() -> None:
    policy = '[[policies]]\nname = "p"\npattern = "^x"\napply_to = "exchanges"\ndefinition = { shards-per-node = 2, routing-key = "1" }\n'
    sharded = Topology.from_toml(HASH + policy)
    assert sharded.exchanges[0].ring is None
    assert Topology.from_toml(sharded.to_toml()) == sharded
    for other in (policy.replace("^x", "^y"), policy.replace("shards-per-node", "max-length")):
        (problem,) = problems_in(HASH + other)
        assert "exchanges[0].ring: an exchange of type x-consistent-hash needs its members" in str(problem)


def test_a_name_that_is_too_long_hides_no_other_mistake() -> None:
    found = problems_in(HASH.replace('"x"', f'"{LONG}"'))
    assert ["needs its members" in found[0], "the text has 257 bytes" in found[1]] == [True, True]


def test_a_misspelled_ring_is_told_once() -> None:
    (problem,) = problems_in(f'{HASH}rnig = [{{ queue = "a" }}]')
    assert "did you mean `ring`?" in str(problem)
