"""Each mistake of a topology file is one problem with its place, its rule and its remedy."""

from __future__ import annotations

import pickle

import pytest
from topologies import problems_in

from rabbit_chx import Topology
from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing.release import NEWEST_COMPARED, Release
from rabbit_chx.topology.file.fields import file_finding
from rabbit_chx.topology.file.toml_file import parse
from rabbit_chx.topology.toml_values import show_value

HASH = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n'
MODULUS = HASH.replace("consistent", "modulus")
QUEUE = '[[queues]]\nname = "q"\n'
LONG = "é" * 127 + "abc"


def queue(type_: str, *arguments: str) -> str:
    return f'{QUEUE}type = "{type_}"\narguments = {{ {", ".join(arguments)} }}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('cluter = "c"', "cluter: the file has no field `cluter`; did you mean `cluster`?"),
        ("zzz = 1", "zzz: the file has no field `zzz`; its fields are cluster, vhost, max_share_moved, owns, exchanges, queues, bindings, super_streams, policies"),
        ('[[queue]]\nname = "q"', "queue: the file has no field `queue`; did you mean `queues`?"),
        (f'{QUEUE}[[queue]]\nname = "q"', "queue: the file has no field `queue`; did you mean `queues`?"),
        (f"{QUEUE}auto-delete = true", "queues[0].auto-delete: a queue has no field `auto-delete`; did you mean `auto_delete`?"),
        (f"{QUEUE}Type = 'quorum'", "queues[0].Type: a queue has no field `Type`; did you mean `type`?"),
        ('queues = "q"', "queues: `queues` must be a list of tables; begin each one with [[queues]]"),
        ('queues = ["q"]', "queues[0]: a queue must be a table; write it as { name = value, ... }"),
        ("cluster = 5", "cluster: a name must be a non-empty string; write the name in quotes"),
        ('owns = ["q", "${TEAM}.*"]', "owns[1]: the variable TEAM is not defined; declare it below [variables], or pass its value; $${TEAM} is this text itself"),
        (f'{QUEUE}arguments = {{ x-dead-letter-exchange = "${{env.DLX}}" }}', 'queues[0].arguments.x-dead-letter-exchange: "${env.DLX}" is not a reference to a variable; write ${name}, with a name of letters, digits, _ and -; $${env.DLX} is this text itself'),
        ("max_share_moved = 5", "max_share_moved: the value must be a number from 0 to 1; write 5% as 0.05"),
        ("max_share_moved = nan", "max_share_moved: the value must be a number from 0 to 1; write 5% as 0.05"),
        ('owns = "a"', 'owns: the value must be a list of names; write it as ["orders.*"]'),
        ("vhost = 5", "vhost: a name must be a non-empty string; write the name in quotes"),
        ('queues = [{ name = "a", vhost = "/" }]', "queues[0].vhost: a queue has no field `vhost`; remove it: a file is for one vhost, and may name it before its first table"),
        ('[[queues]]\nname = ["a"]', 'queues[0].name: the value must be one name; write an entry for each, or a range such as "orders.{1..4}"'),
        ("[[queues]]", "queues[0].name: a queue needs `name`; write name = ..."),
        ('[[queues]]\nname = ""', "queues[0].name: a name must be a non-empty string; write a name"),
        (f'{QUEUE}type = "quroum"', 'queues[0].type: the value must be classic, quorum or stream; write "quorum"'),
        (f"{QUEUE}type = 5", "queues[0].type: the value must be classic, quorum or stream; write one of them in quotes"),
        (f'{QUEUE}durable = "yes"', "queues[0].durable: the value must be true or false; write one of them"),
        (f'{QUEUE}owner = "me"', "queues[0].owner: the value must be ours or external; write one of them in quotes"),
        (f"{QUEUE}arguments = 5", "queues[0].arguments: the value must be a table; write it as { name = value, other = value }"),
        (f"{QUEUE}arguments = {{ a = [2020-01-01] }}", "queues[0].arguments: the argument 'a' is datetime.date(2020, 1, 1) (date); use a string, a number, true or false, a list or a table"),
        (f"{QUEUE}arguments = {{ a = [inf] }}", "queues[0].arguments: the argument 'a' is inf; pass a finite number"),
        (f"{QUEUE}arguments = {{ a = {1 << 63} }}", "queues[0].arguments: the argument 'a' is an integer of more than 64 bits; pass a smaller one"),
        (f"{HASH}ring = [{{ weight = 1 }}]", "exchanges[0].ring[0].queue: the destination must be either a queue or an exchange; write `queue` or `exchange`"),
        (f'{HASH}ring = [{{ queue = "a", exchange = "b" }}]', "exchanges[0].ring[0].exchange: the destination must be either a queue or an exchange; write only one of `queue` and `exchange`"),
        (f'{HASH}ring = [{{ queue = "a", weight = 0 }}]', "exchanges[0].ring[0].weight: a weight must be an integer from 1 to 10000000; remove the member if it should get no messages"),
        (f'{HASH}ring = [{{ queue = "a", weight = true }}]', "exchanges[0].ring[0].weight: a weight must be an integer from 1 to 10000000; write a positive integer"),
        (f'{HASH}ring = [{{ queue = "a", weight = false }}]', "exchanges[0].ring[0].weight: a weight must be an integer from 1 to 10000000; write a positive integer"),
        (f'{HASH}ring = [{{ queue = "a", weight = "1\\n" }}]', "exchanges[0].ring[0].weight: a weight must be an integer from 1 to 10000000; write a positive integer"),
        (f'{HASH}ring = [{{ queue = "a", weight = 10000001 }}]', "exchanges[0].ring[0].weight: a weight must be an integer from 1 to 10000000; divide all weights by the same number"),
        (f'{HASH}ring = [{{ queue = "a", wieght = 2 }}]', "exchanges[0].ring[0].wieght: a member has no field `wieght`; did you mean `weight`?"),
        (f'{HASH}ring = ["a"]', 'exchanges[0].ring[0]: a member must be a table; write it as { queue = "...", weight = 1 }'),
        (f'{HASH}ring = {{ queue = "a" }}', "exchanges[0].ring: `ring` must be a list of tables; write each one as ring = [{ ... }]"),
        (HASH, 'exchanges[0].ring: an exchange of type x-consistent-hash needs its members, in bind order; write ring = [{ queue = "...", weight = 1 }], ring = [] for none, or a policy that shards the exchange'),
        (f"{HASH}slots = 4", "exchanges[0].members: `slots` is the number of slots, and `members` share them; write `members` too"),
        (f'{HASH}members = [{{ queue = "a" }}]', "exchanges[0].slots: `slots` is the number of slots, and `members` share them; write `slots` too, or `ring` instead of `members`"),
        (f'{HASH}ring = []\nslots = 4\nmembers = [{{ queue = "a" }}]', "exchanges[0].slots: an exchange has either `ring`, or `slots` with `members`; remove `ring`, or `slots` and `members`"),
        (f'{HASH}slots = 0\nmembers = [{{ queue = "a" }}]', "exchanges[0].slots: the value must be an integer from 1 to 16384; write 1 or more"),
        (f"{HASH}slots = 4\nmembers = [{{ weight = 1 }}]", "exchanges[0].members[0].queue: a member needs `queue`; write queue = ..."),
        ('[[exchanges]]\nname = "x"\nring = []', 'exchanges[0].ring: only an exchange of type x-consistent-hash has a ring, and this one is of type direct; write type = "x-consistent-hash", or [[bindings]] instead of `ring`'),
        ('[[exchanges]]\nname = "x"\ntype = "topic"\nmax_share_moved = 1', "exchanges[0].max_share_moved: only an exchange of type x-consistent-hash or x-modulus-hash hashes keys, and this one is of type topic; remove `max_share_moved`"),
        (f'{MODULUS}queues = "q"', 'exchanges[0].queues: the value must be a list of names of queues; write it as ["orders.{1..8}"]'),
        (f'{MODULUS}queues = ["q.{{1..3}}", "q.2"]', "exchanges[0].queues: queue q.2 is listed twice; write each queue once: x-modulus-hash has no weights"),
        (f'{MODULUS}queues = ["q.{{3..1}}"]', "exchanges[0].queues: {3..1} counts down; write {1..3}, or an entry for each"),
        (f'{MODULUS}queues = ["{LONG}"]', "exchanges[0].queues: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'{MODULUS}queues = ["q"]\n[[bindings]]\nsource = "x"\nqueue = "r"', "bindings[0].source: the bindings of x are those of its `queues`; write the queue there, or all of its bindings as [[bindings]]"),
        (f'{HASH}ring = []\nqueues = ["q"]', "exchanges[0].queues: only an exchange of type x-modulus-hash has `queues`, and this one is of type x-consistent-hash; write its members as `ring`"),
        ('[[exchanges]]\nname = "x"\nqueues = ["q"]', "exchanges[0].queues: only an exchange of type x-modulus-hash has `queues`, and this one is of type direct; write [[bindings]] instead"),
        ('[[bindings]]\nqueue = "q"', "bindings[0].source: a binding needs `source`; write source = ..."),
        ('[[bindings]]\nsource = "x"', "bindings[0].queue: the destination must be either a queue or an exchange; write `queue` or `exchange`"),
        ('[[bindings]]\nsource = ""\nqueue = "q"', "bindings[0].source: a name must be a non-empty string; write a name"),
        ('[[bindings]]\nsource = "x"\nqueue = "q"\nrouting_key = 5', "bindings[0].routing_key: the value must be a string; write it in quotes"),
        ('[[policies]]\nname = "p"\npattern = ".*"', "policies[0].definition: a policy needs `definition`; write definition = ..."),
        ('[[policies]]\nname = "p"\npattern = ".*"\ndefinition = { max-length = 1 }\napply_to = "queue"', 'policies[0].apply_to: the value must be all, exchanges, queues, classic_queues, quorum_queues or streams; write "queues"'),
        ('[[policies]]\nname = "p"\npattern = ".*"\ndefinition = { max-length = 1 }\npriority = "1"', "policies[0].priority: the value must be an integer from -2147483648 to 2147483647; write it without quotes"),
        ('[[queues]]\nname = "q.{4..1}"', "queues[0].name: {4..1} counts down; write {1..4}, or an entry for each"),
        ('[[bindings]]\nsource = "x"\nqueue = "q.{1..4}"\nrouting_key = "{1..5}"', "bindings[0].routing_key: ranges of one entry expand together, and queue has {1..4}; use the same numbers in all ranges, or write an entry for each"),
        (f'{HASH}ring = [{{ queue = "a.{{b..c}}" }}]', "exchanges[0].ring[0].queue: {b..c} is not a range of integers; write a range as {1..40}, or literal braces as {{...}}"),
        (f'[[queues]]\nname = "{LONG}"', "queues[0].name: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[exchanges]]\nname = "{LONG}"', "exchanges[0].name: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[bindings]]\nsource = "{LONG}"\nqueue = "q"', "bindings[0].source: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[bindings]]\nsource = "x"\nqueue = "{LONG}"', "bindings[0].queue: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[bindings]]\nsource = "x"\nqueue = "q"\nrouting_key = "{LONG}"', "bindings[0].routing_key: the key has 257 bytes: AMQP carries at most 255; write a shorter key"),
        (f'{HASH}ring = [{{ queue = "{LONG}" }}]', "exchanges[0].ring[0].queue: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[policies]]\nname = "{LONG}"\npattern = ""\ndefinition = {{}}', "policies[0].name: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        (f'[[exchanges]]\nname = "x"\n[[bindings]]\nsource = "x"\nexchange = "{LONG}"', "bindings[0].exchange: the name has 257 bytes: AMQP carries at most 255; write a shorter name"),
        ('[[queues]]\nname = "a\\nb"', "queues[0].name: RabbitMQ removes line breaks from names, so the name would differ; write it on one line"),
        ('[[queues]]\nname = "amq.mine"', 'queues[0].name: names that begin with amq. are reserved for the broker; write another name, or owner = "external" if it exists'),
        (f"{QUEUE}{QUEUE}", "queues[1].name: the file declares this queue already, as queues[0]; write each one once"),
        (f'[[queues]]\nname = "q.{{1..9}}"\n{QUEUE.replace("q", "q.7", 2).replace("[[q.7ueues", "[[queues")}', "queues[1].name: the file declares this queue already, as queues[0]; write each one once"),
        ('[[queues]]\nname = "q"\narguments = { a = "{1..3}" }', "queues[0].name: the range of this entry repeats the same queue; write each one once"),
        ('[[exchanges]]\nname = "x"\n[[exchanges]]\nname = "x"\ntype = "topic"', "exchanges[1].name: the file declares this exchange already, as exchanges[0]; write each one once"),
        ('[[bindings]]\nsource = "x"\nqueue = "q"\n[[bindings]]\nsource = "x"\nqueue = "q"', "bindings[1].source: the file declares this binding already, as bindings[0]; write each one once"),
        ('[[policies]]\nname = "p"\npattern = ""\ndefinition = { max-length = 1 }\n' * 2, "policies[1].name: the file declares this policy already, as policies[0]; write each one once"),
        (f'{HASH}ring = [{{ queue = "a.{{1..3}}" }}, {{ queue = "a.2", weight = 5 }}]', "exchanges[0].ring[1].queue: queue a.2 is a member already; write each member once; a weight gives it more buckets"),
        (f'{HASH}ring = [{{ exchange = "a" }}, {{ exchange = "a" }}]', "exchanges[0].ring[1].exchange: exchange a is a member already; write each member once; a weight gives it more buckets"),
        (f'{HASH}ring = [{{ queue = "a.{{1..3}}", weight = 9000000 }}]', "exchanges[0].ring: the weights add up to 27000000, and at most 10000000 buckets are computed; divide all weights by the same number"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a.{{1..3}}" }}]', "exchanges[0].slots: 2 slots cannot be shared by 3 members; write at least one slot for each member, better ten"),
        (f'{HASH}slots = 1\nmembers = [{{ queue = "a.{{1..3}}" }}]', "exchanges[0].slots: 1 slot cannot be shared by 3 members; write at least one slot for each member, better ten"),
        (f"{HASH}slots = 4\nmembers = []", "exchanges[0].members: slots need at least one member; write a member"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}, {{ queue = "a" }}]', "exchanges[0].members[1].queue: queue a is a member already; write each member once; a weight gives it more slots"),
        (f'{HASH}slots = 9\nmembers = [{{ queue = "a" }}, {{ queue = "b", weight = 9 }}]', "exchanges[0].members[0].weight: 1 of 10 is less than one of 9 slots; write more slots, or a larger weight"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0] }}, {{ queue = "b" }}]', "exchanges[0].members[1].slots: either all members list their slots, and each of 0 to 1 occurs once, or none does; list the slots of b in x too, or set weights of all members"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0] }}, {{ queue = "b", slots = [0, 1] }}]', "exchanges[0].members[1].slots: slot 0 of x belongs to a and to b; write it once"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..02"] }}, {{ queue = "b", slots = ["02..03"] }}]', "exchanges[0].members[1].slots: slot 2 of x belongs to a and to b; write it once"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a.{{1..2}}", slots = ["00..03"] }}]', "exchanges[0].members[0].slots: this entry has 2 queues, and a slot of x has one queue; write an entry with its own `slots` for each queue"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00-03"] }}]', 'exchanges[0].members[0].slots: "00-03" is neither a slot nor a range; write a slot as 37 or "37", and a range as "00..11"'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["03..00"] }}]', 'exchanges[0].members[0].slots: the range "03..00" counts down; write "00..03"'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..99999"] }}]', 'exchanges[0].members[0].slots: "00..99999" is out of range; write slots from 0 to 16383'),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a", slots = ["00..02", 2] }}]', "exchanges[0].members[0].slots: the list contains slot 2 twice; write each slot once"),
        (f'{HASH}slots = 2\nmembers = [{{ queue = "a", slots = [0, 2] }}]', "exchanges[0].members[0].slots: x has the slots 0 to 1; remove 2 from a, or write more slots"),
        (f'{HASH}slots = 99\nmembers = [{{ queue = "a", slots = [0] }}]', "exchanges[0].members: either all members list their slots, and each of 0 to 98 occurs once, or none does; assign slot 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ... to a member"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "x.park" }}]', "exchanges[0].members[0].queue: x.park is the parking queue of x; write another queue"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[exchanges]]\nname = "x.slot.03"', "exchanges[1].name: the slots of x create an exchange x.slot.03; write another name, or remove this entry"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[exchanges]]\nname = "x.park"', "exchanges[1].name: the slots of x create an exchange x.park; write another name, or remove this entry"),
        (f'{HASH}slots = 4\nmembers = [{{ queue = "a" }}]\n[[bindings]]\nsource = "x.slot.03"\nqueue = "b"', "bindings[0].source: the slots of x create the bindings of x.slot.03; write `members` of x instead"),
        (f'{HASH.replace(chr(34) + "x" + chr(34), chr(34) + "x" * 249 + chr(34))}slots = 4\nmembers = [{{ queue = "a" }}]', "exchanges[0].name: the name of the last slot exchange, xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..., exceeds 255 bytes; write a shorter name"),
        (f'{HASH}ring = []\narguments = {{ hash-header = "a", hash-property = "message_id" }}', "exchanges[0].arguments: hash-header and hash-property exclude each other; write only one of them"),
        (f"{HASH}ring = []\narguments = {{ hash-header = 5 }}", "exchanges[0].arguments.hash-header: the value must be a string; write it in quotes"),
        (f'{HASH}ring = []\narguments = {{ hash-property = "message-id" }}', 'exchanges[0].arguments.hash-property: the value must be correlation_id, message_id or timestamp; write "message_id"'),
        (f'{HASH}ring = []\narguments = {{ hash-property = "app_id" }}', "exchanges[0].arguments.hash-property: the value must be correlation_id, message_id or timestamp; write one of them in quotes"),
        (f"{HASH}ring = []\narguments = {{ alternate-exchange = 5 }}", "exchanges[0].arguments.alternate-exchange: the value must be a string; write it in quotes"),
        (f'{HASH}ring = []\n[[bindings]]\nsource = "x"\nqueue = "q"', "bindings[0].source: x is of type x-consistent-hash, so the order of its bindings matters; write the destination as a member of its `ring`"),
        ('[[bindings]]\nsource = "amq.headers"\nqueue = "q"\narguments = { x-match = "al" }', 'bindings[0].arguments.x-match: the value must be all, any, all-with-x or any-with-x; write "all"'),
        ('[[exchanges]]\nname = "x"\ntype = "headers"\n[[bindings]]\nsource = "x"\nqueue = "q"\narguments = { x-match = 5 }', "bindings[0].arguments.x-match: the value must be all, any, all-with-x or any-with-x; write one of them in quotes"),
        (f'{QUEUE}type = "quorum"\nexclusive = true', 'queues[0].exclusive: a queue of type quorum cannot be exclusive; remove `exclusive`, or write type = "classic"'),
        (f'{QUEUE}type = "quorum"\ndurable = false', 'queues[0].durable: a queue of type quorum must be durable; remove `durable`, or write type = "classic"'),
        (f'{QUEUE}type = "stream"\nauto_delete = true', 'queues[0].auto_delete: a queue of type stream cannot be deleted automatically; remove `auto_delete`, or write type = "classic"'),
        (f'{QUEUE}exclusive = true\narguments = {{ x-queue-type = "quorum" }}', 'queues[0].exclusive: a queue of type quorum cannot be exclusive; remove `exclusive`, or write type = "classic"'),
        (queue("classic", 'x-queue-type = "quorum"'), "queues[0].arguments.x-queue-type: the type of the queue is classic; remove x-queue-type"),
        (f'{QUEUE}arguments = {{ x-queue-type = "quroum" }}', 'queues[0].arguments.x-queue-type: the value must be classic, quorum or stream; write type = "quorum" instead'),
        (queue("classic", 'x-message-ttl = "60s"'), "queues[0].arguments.x-message-ttl: the value must be an integer from 0 to 315360000000 (milliseconds); write a number, such as 1"),
        (queue("quorum", "x-message-ttl = -1"), "queues[0].arguments.x-message-ttl: the value must be an integer from 0 to 315360000000 (milliseconds); write 0 or more"),
        (queue("classic", "x-expires = 0"), "queues[0].arguments.x-expires: the value must be an integer from 1 to 315360000000 (milliseconds); write 1 or more"),
        (queue("quorum", "x-max-length = true"), "queues[0].arguments.x-max-length: the value must be an integer of 0 or more; write a number, such as 1"),
        (queue("quorum", 'x-consumer-timeout = "soon"'), "queues[0].arguments.x-consumer-timeout: the value must be an integer of 0 or more (milliseconds); write a number, such as 1"),
        (queue("quorum", "x-consumer-disconnected-timeout = -1"), "queues[0].arguments.x-consumer-disconnected-timeout: the value must be an integer of 0 or more (milliseconds); write 0 or more"),
        (queue("stream", 'x-max-length-bytes = "1GB"'), "queues[0].arguments.x-max-length-bytes: the value must be an integer of 0 or more; write a number, such as 1"),
        (queue("classic", "x-max-priority = 256"), "queues[0].arguments.x-max-priority: the value must be an integer from 0 to 255; write 255 or less"),
        (queue("quorum", "x-max-priority = 5"), "queues[0].arguments.x-max-priority: a queue of type quorum does not support x-max-priority; remove it"),
        (queue("quorum", 'x-queue-mode = "lazy"'), "queues[0].arguments.x-queue-mode: a queue of type quorum does not support x-queue-mode; remove it"),
        (queue("stream", "x-message-ttl = 5"), "queues[0].arguments.x-message-ttl: a queue of type stream does not support x-message-ttl; remove it"),
        (queue("stream", "x-single-active-consumer = true"), "queues[0].arguments.x-single-active-consumer: a queue of type stream does not support x-single-active-consumer; remove it"),
        (queue("stream", 'x-max-age = "7 days"'), 'queues[0].arguments.x-max-age: the value must be a number with a unit: Y, M, D, h, m or s; write it as "7D"'),
        (queue("stream", "x-max-age = 7"), 'queues[0].arguments.x-max-age: the value must be a number with a unit: Y, M, D, h, m or s; write it as "7D"'),
        (queue("classic", "x-dead-letter-exchange = 5"), "queues[0].arguments.x-dead-letter-exchange: the value must be a string; write it in quotes"),
        (queue("classic", 'x-dead-letter-routing-key = "k"'), 'queues[0].arguments.x-dead-letter-routing-key: a routing key for dead letters requires an exchange for them; write x-dead-letter-exchange too; "" is the default exchange'),
        (queue("classic", 'x-overflow = "drop"'), 'queues[0].arguments.x-overflow: the value must be drop-head, reject-publish or reject-publish-dlx; write "drop-head"'),
        (queue("classic", 'x-single-active-consumer = "true"'), "queues[0].arguments.x-single-active-consumer: the value must be true or false; write it without quotes"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_problem(text: str, problem: str) -> None:
    assert problems_in(text, NEWEST_COMPARED) == [problem]


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
def test_what_the_broker_accepts_is_not_a_problem(text: str) -> None:
    assert problems_in(text) == []


def test_an_entry_with_a_range_reports_each_mistake_once() -> None:
    assert len(problems_in('[[queues]]\nname = "amq.{1..1000}"\ntype = "quorum"\nexclusive = true')) == 2


def test_each_repetition_names_the_first_entry() -> None:
    first, *others = problems_in('[[queues]]\nname = "q"\n' * 4)
    assert ["queues[0]" in problem for problem in (first, *others)] == [True] * 3


def test_unlisted_destinations_are_external() -> None:
    text = f'{HASH}ring = [{{ queue = "theirs" }}, {{ exchange = "x" }}]\n[[bindings]]\nsource = "amq.topic"\nqueue = "q.10"\n'
    topology = Topology.from_toml(text)
    assert topology.unlisted == ("q.10", "theirs")


def test_a_policy_that_shards_a_hash_exchange_replaces_its_ring() -> None:
    policy = '[[policies]]\nname = "p"\npattern = "^x"\napply_to = "exchanges"\ndefinition = { shards-per-node = 2, routing-key = "1" }\n'
    sharded = Topology.from_toml(HASH + policy)
    assert sharded.exchanges[0].ring is None
    assert Topology.from_toml(sharded.to_toml()) == sharded
    for other in (
        policy.replace("^x", "^y"),
        policy.replace('shards-per-node = 2, routing-key = "1"', "max-length = 2"),
    ):
        (problem,) = problems_in(HASH + other)
        assert "exchanges[0].ring: an exchange of type x-consistent-hash needs its members" in str(problem)


def test_a_name_that_is_too_long_hides_no_other_mistake() -> None:
    found = problems_in(HASH.replace('"x"', f'"{LONG}"'))
    assert ["needs its members" in found[0], "the name has 257 bytes" in found[1]] == [True, True]


def test_a_misspelled_ring_is_reported_once() -> None:
    (problem,) = problems_in(f'{HASH}rnig = [{{ queue = "a" }}]')
    assert "did you mean `ring`?" in str(problem)


def test_an_external_hash_exchange_needs_no_ring() -> None:
    assert Topology.from_toml(f'{HASH}owner = "external"').exchanges[0].ring is None
    assert Topology.from_toml(f"{HASH}ring = []").exchanges[0].ring == ()


def test_all_problems_of_all_entries_are_found_at_once() -> None:
    text = "max_share_moved = 2\n[[queues]]\nnme = 'q'\ndurable = 1\n[[queues]]\ntype = 'x'\n[[bindings]]\nsource = 5\n"
    assert [line.partition(":")[0] for line in problems_in(text)] == [
        "max_share_moved", "queues[0].nme", "queues[0].durable", "queues[1].name", "queues[1].type",
        "bindings[0].queue", "bindings[0].source",
    ]  # fmt: skip


def test_an_invalid_field_does_not_cause_a_second_problem() -> None:
    assert len(problems_in('[[exchanges]]\nname = "x"\ntype = 5\nring = [{ queue = "q" }]')) == 1
    assert len(problems_in('[[queues]]\nname = "q"\ntype = "quroum"\nexclusive = true')) == 1
    assert len(problems_in('[[queues]]\nname = "amq.q"\nowner = "externl"')) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = x", "t.toml has a mistake:\n  line 2, the text: invalid TOML: Invalid value in `b = x`; write strings in q"),
        ("a = 1\n\na = 2", "line 3, the text: invalid TOML: Cannot overwrite a value in `a = 2`; .* each key once"),
        ("my/topology.toml", "in `my/topology.toml`; this is the name of a file: pass its text"),
        ("a = ", "line 1, the text: invalid TOML: Invalid value in `a =`"),
        (f"a = {'[' * 5000}", "invalid TOML|nested too deeply"),
    ],
)  # fmt: skip
def test_invalid_toml_is_reported_with_its_line(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        parse(text, "t.toml")
    assert (caught.value.file, len(caught.value.problems)) == ("t.toml", 1)


LINES = """cluster = 5
# a comment
[[exchanges]]
name = "a"
durable = "no"

[[exchanges]] # second
name = "b"
type = "x-consistent-hash"
ring = [
    { queue = "q1", weight = 1.5 },
    { queue = "q2", weight = 0 },
]
owner = "me"

[exchanges.arguments]
hash-header = 5

[[ queues ]]
"name" = "q"
durable = 1
arguments.x-expires = 0

[[bindings]]
queue = "q"

[[policies]]
name = "p"
pattern = ""
apply_to = "queue"
definition = { max-length = 1 }
"""


def test_a_problem_has_its_line() -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(LINES)
    found = {problem.subject.partition(" = ")[0]: problem.line for problem in caught.value.problems}
    assert found == {
        "cluster": 1,
        "exchanges[0].durable": 5,
        "exchanges[1].ring[0].weight": 11,
        "exchanges[1].ring[1].weight": 12,
        "exchanges[1].owner": 14,
        "exchanges[1].arguments.hash-header": 16,
        "queues[0].durable": 21,
        "queues[0].arguments.x-expires": 22,
        "bindings[0].source": 24,
        "policies[0].apply_to": 30,
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "a" }, { queue = "b", weight = 0 }]', 4),
        ('queues = [{ name = "a" }, { name = "b", durable = 1 }]', 1),
        ('queues = [\n    { name = "a" },\n    { name = "b", durable = 1 },\n]', 3),
        ('[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n[[exchanges.ring]]\nqueue = "a"\n[[exchanges.ring]]\nqueue = "b"\nweight = 0', 6),
        ('owns = ["""\n[[queues]]\n"""]\n[[queues]]\nname = "a"\ndurable = 1', None),
        ("[exchanges]\n[exchanges.a]\n", 1),
    ],
)  # fmt: skip
def test_a_line_is_never_invented(text: str, line: int | None) -> None:
    with pytest.raises(TopologyError) as caught:
        Topology.from_toml(text)
    assert [problem.line for problem in caught.value.problems] == [line]


ONE = file_finding("queues[0].type", "quroum", "a queue's type is classic", 'write "classic"', 7)
TWO = file_finding("queues[1].name", None, "a queue needs `name`", "write name = ...")


def test_an_error_lists_every_problem() -> None:
    error = TopologyError([ONE, TWO], file="orders.toml")
    assert str(error) == (
        "orders.toml has 2 mistakes:\n"
        '  line 7, queues[0].type = "quroum": a queue\'s type is classic; write "classic"\n'
        "  queues[1].name: a queue needs `name`; write name = ..."
    )
    assert (error.problems, error.file) == ((ONE, TWO), "orders.toml")
    assert isinstance(error, InputError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (again.problems, str(again)) == (error.problems, str(error))
    assert isinstance(again, TopologyError)


def test_an_error_without_a_file_names_the_topology() -> None:
    assert str(TopologyError([TWO])).startswith("the topology has a mistake:\n")


def test_values_are_shown_as_toml_and_shortened() -> None:
    assert show_value({"a": [1, True, "é\n"], "b": {}}) == '{ a = [1, true, "é\\n"], b = {} }'
    assert show_value("x" * 100) == '"' + "x" * 59 + "..."
    assert show_value("\ud800") == '"?"'
    assert show_value(1 << 5000) == "a number of 5001 bits"
    assert len(show_value(list(range(10_000)))) == 63


def test_a_word_that_is_close_is_found() -> None:
    words = ("routing_key", "queue", "Durable")
    assert [similar(word, words) for word in ("routing-key", "quque", "DURABLE", "xyz")] == [
        "routing_key", "queue", "Durable", None,
    ]  # fmt: skip


FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash_header = "tenant", alternate-exchange = "lost", mine = 1 }
ring = [{ queue = "ordres.{1..3}" }, { queue = "orders.9" }, { queue = "other" }, { exchange = "adit" }]
[[exchanges]]
name = "audit"
type = "Topic"
arguments = { hash-headers = "a", alternate_exchange = "b" }
[[exchanges]]
name = "delayed"
type = "x-delayed-message"
[[queues]]
name = "orders.{1..3}"
arguments = { message-ttl = 1, x-max-lenght = 5, x-max-length-bytes = 7, x-mine = 2 }
"""


OTHERWISE = "set what it is meant for in another way, or remove it"


def test_a_misspelling_is_reported_once_for_each_name() -> None:
    topology = Topology.from_toml(FILE.replace("orders.{1..3}", "orders.1", 1))
    assert set(topology.misspellings) == {
        "exchange audit is of type Topic: did you mean topic?",
        "the file does not declare exchange adit: did you mean audit?",
        "the file does not declare queue ordres.1: did you mean orders.1?",
    }
    assert len(topology.misspellings) == 3
    # Of an exchange whose type is not known, the arguments are not judged.
    for sentence in (
        "exchange orders has the argument hash_header, which RabbitMQ ignores: did you mean hash-header?",
        "queue orders.1 has the argument message-ttl, which RabbitMQ ignores: did you mean x-message-ttl?",
        "queue orders.1 has the argument x-max-lenght, which RabbitMQ ignores: did you mean x-max-length?",
        f"queue orders.1 has the argument x-mine, which RabbitMQ ignores: {OTHERWISE}",
    ):
        assert sentence in topology.ignored_arguments()


def test_correct_and_very_different_names_are_not_misspellings() -> None:
    text = FILE.replace('hash-headers = "a", ', "")
    for wrong, correct in (
        ("ordres", "orders"), ("adit", "zzz"), ("Topic", "topic"), ("hash_header", "hash-header"),
        ("lenght", "length"), ("message-ttl", "x-message-ttl"), ("alternate_exchange", "alternate-exchange"),
    ):  # fmt: skip
        text = text.replace(wrong, correct)
    topology = Topology.from_toml(text)
    assert topology.misspellings == ()
    assert {sentence.split(" the argument ")[1] for sentence in topology.ignored_arguments()} == {
        f"{name}, which RabbitMQ ignores: {OTHERWISE}" for name in ("mine", "x-mine")
    }
    assert [str(name) for name in topology.unlisted] == ["exchange zzz", "orders.9", "other"]


@pytest.mark.parametrize(
    ("pattern", "name", "fix"),
    [
        (r"^o\..*$", "o.1", 'write "o.*"'),
        (r"o\..*", "other", 'write "o.*"'),
        ("^o", "o.1", 'write "o*"'),
        ("^o$", "o.1", 'write "o"'),
        ("o.(1|2)", "o.1", "write a pattern for each name"),
        ("o[1]", "o[1]", None),
        ("o.*", "p", None),
    ],
)
def test_owns_with_a_regular_expression_that_matches_no_name(
    pattern: str, name: str, fix: str | None
) -> None:
    topology = Topology.from_toml(f"owns = ['{pattern}']\n[[queues]]\nname = '{name}'")
    found = f"`owns` has {pattern!r}, which looks like a regular expression, and matches no name of the file: only * is special; {fix}"
    assert topology.misspellings == (() if fix is None else (found,))


def test_a_thousand_names_are_compared_in_a_moment() -> None:
    members = ", ".join(f'{{ queue = "{n:x}{n * 7919:x}" }}' for n in range(2000))
    queues = "".join(f'[[queues]]\nname = "q{n * 104729:x}"\n' for n in range(2000))
    text = f'[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{members}]\n{queues}'
    assert len(Topology.from_toml(text).misspellings) <= 100


@pytest.mark.parametrize("name", ["hash-header", "hash-property"])
def test_an_argument_that_only_the_other_hash_exchange_reads_is_named(name: str) -> None:
    text = f'[[exchanges]]\nname = "x"\ntype = "x-modulus-hash"\nqueues = []\narguments = {{ {name} = "message_id" }}\n'
    ignored = f"which RabbitMQ ignores (only exchanges of type x-consistent-hash have it): {OTHERWISE}"
    assert Topology.from_toml(text).ignored_arguments() == (f"exchange x has the argument {name}, {ignored}",)
    text = text.replace("modulus", "consistent").replace("queues", "ring")
    assert Topology.from_toml(text).ignored_arguments() == ()


#: Arguments of exchanges and queues, the type, the releases that ignore them, and what is said of one of these.
IGNORED = [
    ("exchanges x-consistent-hash", "x-hash-on", "3.8 3.10 4.0 4.3", "ignores: set what"),  # LavinMQ
    ("exchanges x-consistent-hash", "x-algorithm", "3.8 3.10 4.0 4.3", "ignores: set what"),
    (
        "exchanges fanout",
        "hash-header",
        "3.8 3.10 4.0 4.3",
        "(only exchanges of type x-consistent-hash have it)",
    ),
    ("exchanges fanout", "x-delayed-exchange", "3.8 3.10 4.0 4.3", "ignores: set what"),
    (
        "exchanges fanout",
        "x-delayed-type",
        "3.8 3.10 4.0 4.3",
        "(only exchanges of type x-delayed-message have it)",
    ),
    ("exchanges x-delayed-message", "x-delayed-type", "", ""),
    ("exchanges x-delayed-message", "hash-header", "", ""),  # behind it is an x-consistent-hash exchange
    ("exchanges x-jms-topic", "x-anything", "", ""),  # a plugin's: its arguments are not known
    ("exchanges topic", "alternate-exchange", "", ""),
    ("queues classic", "x-ttl", "3.8 3.10 4.0 4.3", "ignores: set what"),
    ("queues stream", "x-stream-initial-offset", "3.8 3.10 4.0 4.3", "ignores: set what"),
    ("queues quorum", "x-delayed-retry-type", "3.8 3.10 4.0", "(RabbitMQ has it from 4.3 on)"),
    ("queues quorum", "x-consumer-timeout", "3.8 3.10", "(RabbitMQ has it from 3.12 on)"),
    ("queues quorum", "x-quorum-target-group-size", "3.8 3.10", "(RabbitMQ has it from 3.13 on)"),
    (
        "queues classic",
        "x-quorum-target-group-size",
        "3.8 3.10 4.0 4.3",
        "(only queues of type quorum have it)",
    ),
    ("queues quorum", "x-delivery-limit", "", ""),
    ("queues classic", "x-message-deduplication", "", ""),
]


@pytest.mark.parametrize("release", ["3.8", "3.10", "4.0", "4.3"])
@pytest.mark.parametrize(("declared", "argument", "releases", "says"), IGNORED)
def test_an_argument_without_effect_is_named_by_release(
    declared: str, argument: str, releases: str, says: str, release: str
) -> None:
    kind, type_ = declared.split()
    value = '"x-consistent-hash"' if argument == "x-delayed-type" else '"x"'
    more = (
        ', x-delayed-type = "x-consistent-hash"' if argument == "hash-header" and "delayed" in type_ else ""
    )
    ring = "ring = []" if type_ == "x-consistent-hash" else ""
    text = f'[[{kind}]]\nname = "a"\ntype = "{type_}"\narguments = {{ {argument} = {value}{more} }}\n{ring}\n'
    topology = (
        Topology.from_toml(text.replace('x-delivery-limit = "x"', "x-delivery-limit = 5")) if says else None
    )
    topology = topology or Topology.from_toml(text)
    found = topology.ignored_arguments(Release(release))
    assert bool(found) is (release in releases.split())
    if found:
        assert f"a has the argument {argument}, which RabbitMQ {Release(release).version} ignores" in found[0]
    # Without a release only what all releases ignore is named.
    assert bool(topology.ignored_arguments()) is (releases == "3.8 3.10 4.0 4.3")
    if topology.ignored_arguments():
        assert says in topology.ignored_arguments()[0]


def test_an_argument_of_many_queues_is_named_once() -> None:
    text = '[[queues]]\nname = "q.{1..12}"\narguments = { x-ttl = 5 }\n'
    (sentence,) = Topology.from_toml(text).ignored_arguments()
    assert sentence.startswith("12 queues (q.1, q.2, ")


@pytest.mark.parametrize("release", ["3.8.9", "3.10.8", "4.0.5", "4.3.6", None])
@pytest.mark.parametrize(("type_", "limit"), [("quorum", -1), ("quorum", 0), ("quorum", 5), ("classic", -1)])
def test_a_negative_delivery_limit_loses_messages_before_4_0(
    type_: str, limit: int, release: str | None
) -> None:
    text = f'[[queues]]\nname = "q"\ntype = "{type_}"\narguments = {{ x-delivery-limit = {limit} }}\n'

    def problems() -> list[str]:
        try:
            Topology.from_toml(text, release=None if release is None else Release(release))
        except TopologyError as error:
            return [problem.message for problem in error.problems]
        return []

    found = [problem for problem in problems() if "drops each message that is returned" in problem]
    assert bool(found) is (type_ == "quorum" and limit < 0 and release in ("3.8.9", "3.10.8"))
