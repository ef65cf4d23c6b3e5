"""The JSON Schema of each document that a command writes, `rabbit_chx/cli/schemas/*.json`; tests compare them with real documents.

A shape is written as in TypeScript: `name?: type` may be missing, `type?` may be null. A word without a colon is a shape whose fields are inserted; before
a question mark they may be missing.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from rabbit_chx.analysis.findings import CHECK_KINDS, SHARD_KINDS, VERIFY_KINDS
from rabbit_chx.result_fields import document

Schema: TypeAlias = dict[str, Any]

_TYPES: dict[str, Schema] = {
    "text": {"type": "string"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "any": {},
    **{
        name: {"oneOf": [{"const": kind, "description": says} for kind, says in kinds.items()]}
        for name, kinds in {
            "finding": {
                **CHECK_KINDS,
                **VERIFY_KINDS,
                "misspelling": "of `--offline`: a name that resembles another",
            },
            "problem": SHARD_KINDS,
        }.items()
    },
}
_SHAPES = {
    "exchange": "exchange: text",
    "severity": "severity: error|warning|note",
    "found": "kind: finding severity exchange: text? destination: place share: number? likely?: number advice",
    "refused": "refused: text",
    "release": "version: text  store: mnesia|khepri  store_known: bool",
    "origin": "provenance: read|recorded|observed|replayed?  condition: text?  doubt?: text",
    "ring": "release: release  origin  buckets: int?  destinations: [place]  slots?: object",
    "modulus": "exchange: text  release: release  origin  destinations: [place]",
    "super_stream": "exchange: text  origin  client: text  routing: text?  partitions: [text]",
    "source": "ring: ring?  modulus?: modulus  super_stream?: super_stream",
    "whole": "release: release  origin  buckets: [place]?  bindings: [[place]]?  next_bucket?: int?  slots?: object",
    "key_map": "format?: text  format_version?: int  release: release  provenance?: text  condition?: text?  doubt?: text  exchange?: text"
    "  destinations?: [place]?  buckets?: [place]?  bindings?: [[place]]?  next_bucket?: int?  slots?: object",
    "matrix": "moved: number  least: number  cells: [{from: place to: place amount: number}]  more_cells?: int",
    "advice": "message: text  fix: text",
    "refusal": "advice  allow_with: text?",
    "change": "action: create|update|replace|delete|bind|unbind  kind: exchange|queue|binding|policy  name: text"
    "  fields: [{field: text old: any new: any}]",
    "share": "moved: number  moved_at_worst: number",
    "applied": "checksum: text  planned: int  changes: [change]  rings: [{exchange: text ring: key_map}]  refusals: [refusal]  message: text?"
    "  handed_over?: [handed]  unparked?: int  overtaken?: [text]",
    "repaired": "state: planned|unchanged|refused|applied|partly  applied  exchange: text  plan: {format: text format_version: int plan}"
    "  left: [text]",
    "handed": "slot: text  old: place  new: place",
    "planned": "exchange: text  determined?: bool  moved: number?  moved_at_worst: number?  at_most?: {share}  proposals: [{strategy: text share ring: [object] slots?: int}]  before: key_map"
    "  after: key_map  matrix: matrix?  handed_over?: [handed]",
    "plan": "changes: [change]  rings: [planned]  refusals: [refusal]  checksum: text  unmanaged: [{kind: text name: text}]"
    "  resumes?: text  warnings?: [{message: text}]  parked?: [{queue: text messages: int}]  file?: text"
    "  broker?: {cluster: text? release: release vhost: text}",
    "answer": "key: text  destination: place  slot?: text?  fault?: text?  hashed_on?: text  term?: text?  phash2?: int?"
    "  seed?: int?  walk?: [int]?  bucket?: int?  buckets?: int?  reason?: text?  rule?: text?  source?: text?",
    "shown": "exchange: text  vhost: text  determined: bool  learn?: text?  cluster?: text?  whole?  destinations?: [place]?  name?: text  client?: text  routing?: text?  partitions?: [text]"
    "  binding_keys?: [text]  arguments: object?  record: object?  rate: number?"
    "  members: [{destination: place queue: text? weights: [text]? buckets: int? share: number? load: number?"
    " rate: number? traffic?: number state: text? ready?: int unacked?: int consumers?: int}]"
    "  queues?: [{queue: text? slots: int share: number? load: number? rate: number?"
    " traffic?: number state: text? ready?: int unacked?: int consumers?: int}]"
    "  sample: {source: text messages: int nowhere: int}?"
    "  heaviest?: [{key: text slot: text? queue: text? least: int most: int}]?  sharding?: sharding",
    "sharding": "type: text  policy: text?  shards_per_node: int?  routing_key: text?  nodes: [text]?"
    "  shards: [{queue: text node: text? number: int type: text? keys: [text] messages: int? consumers: int?}]"
    "  missing: [text]?  findings: [{kind: problem severity shards: [text] advice}]",
    "moves": "refused_before: int?  refused_after: int?  messages: matrix?"
    "  moves: [{key: text before: outcome after: outcome}]?",
    "upgraded": "exchange: text  hashes: text  verdict: safe|repair|moves|unknown  moved: number?  exact: matrix?"
    "  order: kept|lost|none  findings: [{kind: text severity advice}]",
}
#: The fields of each document, besides `format` and `format_version`.
FORMATS = {
    "answer": "answer  provenance?: text?  condition?: text?  doubt?: text  determined?: bool",
    "apply": "state: applied|unchanged|refused|partly  applied",
    "arrange": "rings: [{exchange: text before: {share} after: {share}}]  pinned: [text]  determined: bool  text: text?",
    "check": "determined?: bool  findings: [{vhost?: text file?: text found}]"
    "  rings?: [{vhost?: text exchange: text determined: bool learn?: text? origin buckets: int? order_not_checked: text? observed_keys?: int}]  objects?: int?  consumers_not_checked?: text?",
    "compare": "source  determined: bool  learn?: text  shares: [{destination: place buckets: int? share: number? ideal: number? skew: number?}]"
    "  sample: {messages: int keys: int? refused: int refusal: text? destinations: [{destination: place messages: int keys: int?}]?"
    " heaviest: [{key: text messages: int destination: place}]}?"
    "  change: {source moved: number? shares: matrix? less: {arranged: number? slots: number?}? moves}?",
    "group": "exchange: text  vhost: text  version: text  determined: bool  queues: [{name: text type: text? single_active_consumer: bool"
    " ready: int? unacked: int? consumers: int? active: [text]? waiting: [text]? last_switch: text?}]"
    "  members: [{name: text connected_at: text? active: [text] waiting: [text]}]?"
    "  parked: int?  ignored_entries: int?  findings: [{found}]  consumers_not_checked: text?  order_not_checked: text?",
    "keys": "source  destination: place  determined: bool  learn?: text  keys: [text]?",
    "plan": "plan",
    "records": "vhost: text"
    "  recorded: [{exchange: text origin: text members: int written: text writer: text is_new: bool}]",
    "repair": "repaired",
    "repairs": "repairs: [repaired]",
    "rings": "determined: bool  exchanges: [{vhost: text exchange: text members: int buckets: int? slots: int? origin determined: bool findings: [finding]}]"
    "  modulus?: [{vhost: text exchange: text members: int bindings: int findings: [finding]}]",
    "route": "source  determined: bool  learn?: text  answers: [answer]",
    "show": "shown?  exchanges?: object",
    "stream-group": "group: text  vhost: text"
    "  streams: [{stream: text assigned: text? active: text? generation: int? stored: int? lag_rows: int lag_s: number oldest_s: number?}]"
    "  members: [{name: text weight: number heard_at: text assigned: int}]",
    "topology": "determined?: bool  cluster?: text  vhost?: text  max_share_moved?: number  owns?: [text]  exchanges?: [object]"
    "  queues?: [object]  bindings?: [object]  super_streams?: [object]  policies?: [object]",
    "upgrade": "source: text  release: release  to_release: release  exchanges: [upgraded]",
    "verify": "exchange: text  vhost: text  arguments: object  source  determined: bool"
    "  findings: [{kind: finding severity destination: place share: number? advice}]  compared: int  mismatches: int?"
    "  heaviest_key: {key: text share: number}?  destinations: [{destination: place messages: int predicted: int}]?"
    "  examples: [{key: text predicted: outcome found: place}]",
}
#: The meaning of fields whose name does not say it, wherever they are.
_SAYS = {
    "allow_with": "The option of `apply` that permits it.",
    "at_most": "The largest possible shares, where the exact ones are not known.",
    "cells": "A pair without a cell is 0.",
    "changes": "Of a plan, all; after an apply, those that were made.",
    "checksum": "SHA-256 over both sides and the changes.",
    "determined": "False if something depends on an order or a hashed value that is not known; it is null.",
    "done": "The number of changes that were made.",
    "exact": "The exact shares; null if only a sample can show them.",
    "ignored_entries": "The number of messages in the journal that no group wrote.",
    "keys": "In reports of slots, the share of all keys.",
    "lag_rows": "The offsets after the stored one.",
    "lag_s": "The age of the oldest offset after the stored one, in seconds.",
    "learn": "The command that learns the order which is not known; null if no command does.",
    "least": "The minimum for this change.",
    "left": "The kinds of findings afterwards.",
    "load": "The share of the messages of the sample.",
    "missing": "Shards of the policy that do not exist.",
    "more_cells": "The number of smaller cells that are left out.",
    "moved": "The share of keys, or the number, with another destination afterwards.",
    "moved_at_worst": "The peak of `moved` between two steps.",
    "nodes": "Null without the tag `monitoring`.",
    "not_determined_since": "Why the ring may have changed since the last record; null if it has not.",
    "oldest_s": "The age of the oldest message of the stream, in seconds.",
    "overtaken": "Sentences about messages that lost their order.",
    "parked": "The messages in parking queues of slots.",
    "pinned": "The exchanges whose members now list their slots.",
    "planned": "The number of changes of the plan.",
    "traffic": "The share of the messages of the last minute, in the pages of `ui`.",
    "provenance": "The source of the ring.",
    "condition": "What must be true for a recorded ring to be that of the broker, and for the shares of a ring whose order is not known; else null.",
    "refused": "The broker would close the channel: the reason, or the number of such messages.",
    "share": "The share of the keys, in a finding of those affected.",
    "unmanaged": "Objects of the broker that the file neither has nor owns.",
    "unparked": "The number of messages published again from the parking queue.",
}


def output_schemas() -> dict[str, str]:
    """Return the text of each file, by its path in the repository."""
    return {
        f"rabbit_chx/cli/schemas/{name}.json": json.dumps(_document_schema(name), indent=1) + "\n"
        for name in FORMATS
    }


def _document_schema(name: str) -> Schema:
    declared = document(name)
    schema = _object(_words(FORMATS[name]))
    schema["properties"] = {key: {"const": value} for key, value in declared.items()} | schema["properties"]
    schema["required"] = [*declared, *schema["required"]]
    definitions: dict[str, Schema] = {}
    while missing := set(re.findall(r"#/definitions/(\w+)", json.dumps([schema, definitions]))) - set(
        definitions
    ):
        definitions |= {shape: _object(_words(_SHAPES[shape])) for shape in sorted(missing)}
    heading = {"$schema": "http://json-schema.org/draft-07/schema#", "title": declared["format"]}
    return heading | schema | ({"definitions": definitions} if definitions else {})


def _words(shape: str) -> list[str]:
    return re.findall(r"[a-z_0-9]+\??:|[\[\]{}?]|[a-z_|0-9-]+", shape)


def _object(words: list[str]) -> Schema:
    """Take the fields up to the closing brace or the end."""
    schema: Schema = {"type": "object", "properties": {}, "required": []}
    while words and (word := words.pop(0)) != "}":
        if not word.endswith(":"):
            inserted = _object(_words(_SHAPES[word]))
            schema["properties"] |= inserted["properties"]
            if words[:1] == ["?"]:
                words.pop(0)
            else:
                schema["required"] += inserted["required"]
            continue
        name = word.rstrip("?:")
        says = {"description": _SAYS[name]} if name in _SAYS else {}
        schema["properties"][name] = says | _value(words)
        if not word.endswith("?:"):
            schema["required"].append(name)
    return schema


def _value(words: list[str]) -> Schema:
    word = words.pop(0)
    if word == "[":
        schema: Schema = {"type": "array", "items": _value(words)}
        words.pop(0)
    elif word == "{":
        schema = _object(words)
    elif word in {"place", "outcome"}:
        schema = {"anyOf": [_TYPES["text"], _value(["exchange"]), {"type": "null"}]}
        schema["anyOf"] += [_value(["refused"])] if word == "outcome" else []
    elif word in _SHAPES:
        schema = {"$ref": f"#/definitions/{word}"}
    else:
        schema = {"enum": word.split("|")} if "|" in word else _TYPES[word]
    if words and words[0] == "?":
        words.pop(0)
        return {"anyOf": [schema, {"type": "null"}]}
    return schema
