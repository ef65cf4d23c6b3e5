"""What is created, changed, replaced, deleted or left as it is, and what is wrong with objects of others."""

from __future__ import annotations

from rabbit_chx.topology import ExchangeDefinition, PolicyDefinition, QueueDefinition, Topology
from rabbit_chx.topology.differences import object_differences


def test_each_object_is_in_one_list() -> None:
    wanted = Topology(
        (ExchangeDefinition("new"), ExchangeDefinition("same")),
        (QueueDefinition("other", "quorum"),),
        (),
        (PolicyDefinition("p", "b"),),
        owns=("mine.*",),
    )
    live = Topology(
        (ExchangeDefinition("same"), ExchangeDefinition("mine.old")),
        (QueueDefinition("other"), QueueDefinition("theirs")),
        (),
        (PolicyDefinition("p", "a"), PolicyDefinition("mine.p", "")),
    )

    found = object_differences(wanted, live)

    assert [subject.name for subject in found.created] == ["new"]
    assert [(old.pattern, new.pattern) for old, new in found.updated] == [("a", "b")]
    assert [new.name for _, new in found.replaced] == ["other"]
    assert [subject.name for subject in found.deleted] == ["mine.old", "mine.p"]
    assert [subject.name for subject in found.unmanaged] == ["theirs"]
    assert found.refusals == ()


def test_an_exchange_and_a_queue_of_one_name_are_two_objects() -> None:
    found = object_differences(Topology((ExchangeDefinition("a"),)), Topology((), (QueueDefinition("a"),)))

    assert [type(subject) for subject in found.created] == [ExchangeDefinition]
    assert [type(subject) for subject in found.unmanaged] == [QueueDefinition]


def test_objects_of_others_are_only_compared() -> None:
    wanted = Topology(
        (),
        (QueueDefinition("absent", owner="external"), QueueDefinition("other", "quorum", owner="external")),
    )

    found = object_differences(wanted, Topology((), (QueueDefinition("other"),)))

    assert (found.created, found.replaced, found.unmanaged) == ((), (), ())
    assert len(found.refusals) == 2
    assert all(refusal.allow_with is None for refusal in found.refusals)
