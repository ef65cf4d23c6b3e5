"""A topology as manifests of RabbitMQ's messaging topology operator for Kubernetes.

The fields are those of ``api/v1beta1`` of rabbitmq/messaging-topology-operator. Scalars and arguments are written as JSON,
which is YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from rabbit_chx.errors import TopologyError
from rabbit_chx.topology.definitions import (
    hash_exchange_names,
    listed_bindings,
    listed_fields,
    ours,
    unwritable,
)
from rabbit_chx.topology.objects import ObjectSet
from rabbit_chx.topology.problems import Problem

_API = "rabbitmq.com/v1beta1"
#: The fields of each kind, by their names here.
_FIELDS = {
    "Exchange": ("name", "type", "durable", "auto_delete", "arguments"),
    "Queue": ("name", "type", "durable", "auto_delete", "arguments"),
    "Binding": ("source", "destination", "destination_type", "routing_key", "arguments"),
    "Policy": ("name", "pattern", "apply_to", "priority", "definition"),
}
_RESOURCE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_RESOURCE_NAME = 253
_SHORTENED = 200
# What YAML does not take as it is, beyond what JSON escapes.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def manifests(topology: ObjectSet, cluster: str, namespace: str | None, vhost: str, *, rings: bool) -> str:
    """Return the YAML text.

    Args:
        topology: what to write; external objects are not written.
        cluster: the name of the ``RabbitmqCluster``.
        namespace: the namespace of the objects, if one is written.
        vhost: the vhost of all objects.
        rings: whether to write the bindings of hash exchanges.

    Raises:
        TopologyError: the operator has no field for something.
    """
    problems = [*unwritable(topology, "manifests"), *_unknown_to_operator(topology)]
    if problems:
        raise TopologyError(problems)
    documents = []
    for kind, name, fields in _objects(topology, rings=rings):
        metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
        spec = {**fields, "vhost": vhost, "rabbitmqClusterReference": {"name": cluster}}
        documents.append(
            f"apiVersion: {_API}\nkind: {kind}\nmetadata:\n{_block(metadata)}spec:\n{_block(spec)}"
        )
    return _comment(topology, rings=rings) + "".join(f"---\n{document}" for document in documents)


def _objects(topology: ObjectSet, *, rings: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the kind, the name in Kubernetes and the fields of each object."""
    for kind, definitions in (
        ("Exchange", ours(topology.exchanges)),
        ("Queue", ours(topology.queues)),
        ("Binding", listed_bindings(topology, rings=rings)),
        ("Policy", ours(topology.policies)),
    ):
        for definition in definitions:
            values = listed_fields(definition)
            fields = {_camel_case(name): values[name] for name in _FIELDS[kind]}
            if kind == "Binding":
                identity = json.dumps(fields, sort_keys=True)
                yield kind, _hashed(f"{values['source']}-{values['destination']}", identity), fields
            else:
                yield kind, _resource_name(values["name"]), fields


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _unknown_to_operator(topology: ObjectSet) -> Iterator[Problem]:
    for exchange in ours(topology.exchanges):
        if exchange.internal:
            rule = "the operator has no internal exchanges"
            remedy = "leave `internal` out, or declare it otherwise"
            yield Problem(f"exchange {exchange.name}", "", rule, remedy)
    for policy in ours(topology.policies):
        if policy.apply_to == "streams":
            rule = "the operator has no policies for streams alone"
            remedy = 'write apply_to = "queues" and a pattern for them'
            yield Problem(f"policy {policy.name}", "", rule, remedy)


def _comment(topology: ObjectSet, *, rings: bool) -> str:
    names = hash_exchange_names(topology)
    if not names:
        return "# Written by rabbit_chx.\n"
    if rings:
        return (
            "# Written by rabbit_chx. The operator creates bindings in no particular order, so the ring order of\n"
            f"# {_printable(names)} is lost. To keep it, leave the bindings of hash exchanges out, and bind in order.\n"
        )
    return f"# Written by rabbit_chx without the bindings of {_printable(names)}: bind their members in ring order.\n"


def _printable(text: str) -> str:
    """Return text for a comment, on one line."""
    return _json(text)[1:-1]


def _resource_name(name: str) -> str:
    """Return a name that Kubernetes takes: the name itself, or one that is like it and ends in a hash."""
    if len(name) <= _MAX_RESOURCE_NAME and _RESOURCE_NAME.fullmatch(name):
        return name
    return _hashed(name, name)


def _hashed(name: str, identity: str) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_SHORTENED].strip("-")
    digest = sha256(identity.encode()).hexdigest()[:12]
    return f"{words}-{digest}" if words else digest


def _block(fields: Mapping[str, Any], indent: str = "  ") -> str:
    lines = []
    for name, value in fields.items():
        if name == "rabbitmqClusterReference":
            lines.append(f"{indent}{name}:\n{_block(value, indent + '  ')}")
        elif value != {} or name == "definition":
            lines.append(f"{indent}{name}: {_json(value)}\n")
    return "".join(lines)


def _json(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_json(name)}: {_json(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_json, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 reads 1e-05 as text
    return _UNPRINTABLE.sub(lambda character: f"\\u{ord(character.group()):04x}", text)
