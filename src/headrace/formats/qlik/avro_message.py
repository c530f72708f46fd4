"""Qlik's messages in Avro, read onto the tape that the same JSON would give.

| value | schema of the datum |
|---|---|
| envelope (`atMSG`, also after a frame) with messageSchema | that one |
| envelope with messageSchemaId | dataSchema of the metadata message with this id |
| anything else | what the framing names, from the registry |
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import FormatError
from headrace.formats.json_messages import JsonMessages, key_names
from headrace.formats.qlik.avro_schema import ENVELOPE, Description, described, write_canonical
from headrace.formats.qlik.masks import hex_texts
from headrace.formats.qlik.message import BODY, HEADERS, Messages
from headrace.formats.qlik.metadata import MAGIC, MetadataMessage, read_metadata
from headrace.formats.qlik.schemas import unknown
from headrace.formats.registry.connect_avro import writer_schema
from headrace.formats.registry.framing import Heads, Side
from headrace.formats.registry.schemas import SchemaSource
from headrace.wire.arrays import own_view
from headrace.wire.avro_schema import AvroSchema
from headrace.wire.avro_tape import AvroTape
from headrace.wire.avro_to_json import AvroJson
from headrace.wire.json_exact import READ
from headrace.wire.json_writer import string_lists
from headrace.wire.spans import Array

_ENVELOPE = AvroSchema(ENVELOPE)
_FRAME = 5
_TYPES = ("DT", "MD")


@dataclass
class SeenSchemas:
    """The schemas of one side that a task has met, as one tree, by which all messages are read at once.

    Args:
        indexes: the number of each schema, by what names it.
        problems: why what some name can't be used.
        plain: the schemas.
        tree: all of them.
    """

    indexes: dict[tuple[str, Any], int] = field(default_factory=dict)
    problems: dict[tuple[str, Any], str] = field(default_factory=dict)
    plain: list[Any] = field(default_factory=list)
    tree: AvroSchema = field(default_factory=AvroSchema)


class AvroReader:
    """Finds the messages of batches; what it remembers is which schemas it has met.

    Args:
        metadata: what is known, by schema id.
        source: where framed messages have their schemas from; None where no registry is given.
    """

    def __init__(self, metadata: Mapping[str, MetadataMessage], source: SchemaSource, *, has_registry: bool) -> None:
        self._metadata, self._source, self._has_registry = metadata, source, has_registry
        self._values, self._keys = SeenSchemas(), SeenSchemas()
        self.described: list[Description | None] = []
        """What the schemas of values say of columns, by their numbers."""

    def __call__(self, batch: pa.RecordBatch) -> Messages:
        values = batch.column("value")
        present = values.is_valid().to_numpy(zero_copy_only=False)
        start = self._starts(values)
        envelopes = _Envelopes(values, start)
        heads = self._source.framing.heads(batch, "value")
        heads.of[envelopes.there] = -1
        which, names, problems = self._schemas_of(batch, envelopes, heads)
        sizes = np.where(envelopes.there, envelopes.message, heads.sizes)
        tape = AvroJson(values, sizes, self._values.tree, which)
        for number in map(int, np.flatnonzero(present & (which >= 0) & (tape.root < 0))):
            problems.setdefault(number, "The value is not an Avro datum of its schema.")
        keys = _Keys(self, batch, envelopes.there | ~present, problems)
        body = JsonMessages(tape, tape.root, BODY)
        head = JsonMessages(tape, body.every("headers"), HEADERS)
        write_canonical(tape, np.concatenate([body.every("data"), body.every("beforeData")]), which, self.described)
        is_metadata = tape.is_value(body.every("tableStructure"))
        is_metadata[list(problems)] = False
        return Messages(
            tape,
            body,
            head,
            names,
            which,
            is_metadata,
            lambda number: read_metadata(json.loads(tape.text(tape.root[number]) or "null")),
            (_hex(head.texts("changeMask")), _hex(head.texts("columnMask"))),
            "The datum is not a Qlik data record.",
            keys.names,
            dict(sorted(problems.items())),
        )

    def _starts(self, values: pa.BinaryArray) -> Array:
        """How many bytes stand in front of each envelope; -1 where there is none."""
        starts = np.full(len(values), -1, np.int64)
        indexes = (0, _FRAME) if self._source.framing.in_front else (0,)
        size = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        for index in indexes:
            # Arrow can't cut a text after its end.
            rows = np.flatnonzero(size >= index + len(MAGIC))
            there = pc.equal(pc.binary_slice(values.take(pa.array(rows)), index, index + len(MAGIC)), MAGIC)
            starts[rows[there.to_numpy(zero_copy_only=False)]] = index
        return starts

    def _schemas_of(
        self, batch: pa.RecordBatch, envelopes: _Envelopes, heads: Heads
    ) -> tuple[Array, pa.StringArray, dict[int, str]]:
        """The number of each message's schema, the ids that envelopes name, and why some have no schema."""
        values, problems = batch.column("value"), dict(envelopes.problems)
        names = [*envelopes.names, *(("framed", head) for head in heads.heads)]
        of = np.where(envelopes.there, envelopes.of, np.where(heads.of >= 0, heads.of + len(envelopes.names), -1))
        self._meet(self._values, "value", names)
        which = np.array([*(self._values.indexes.get(name, -1) for name in names), -1])[of]
        which[list(problems)] = -1
        for number in map(int, np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False) & (which < 0))):
            if number in problems:
                continue
            if of[number] >= 0:
                problems[number] = self._values.problems[names[of[number]]]
            else:
                problems[number] = self._source.framing.problem(batch, "value", number)
        return which, envelopes.ids, problems

    def _meet(self, met: SeenSchemas, side: Side, names: Sequence[tuple[str, Any]]) -> None:
        """Find out what names stand for that were not met before."""
        fresh = [name for name in names if name not in met.indexes]
        if not fresh:
            return
        framed = [head for kind, head in fresh if kind == "framed"]
        of_registry = self._source.resolved([(side, head) for head in framed]) if self._has_registry else {}
        for name in fresh:
            kind, schema_name = name
            text: str | None = schema_name
            which = "in the message"
            if kind == "id":
                known = self._metadata.get(schema_name)
                text, which = None if known is None else known.data_schema, f"of {schema_name}"
                problem = unknown(schema_name)
            elif kind == "framed":
                problem = "The message names a schema of a registry, and option 'registry' is not set."
                numbers = of_registry.get((side, schema_name))
                text, which = None, "of the registry"
                if numbers is not None:
                    text, problem = numbers.text, numbers.problem or problem
            if text is None:
                met.problems[name] = problem
                continue
            try:
                # A copy: columns get their table's own names below, and two tables may share this text.
                plain = copy.deepcopy(writer_schema(text).plain)
            except FormatError as error:
                met.problems[name] = f"The schema {which} can't be used: {error}"
                continue
            met.indexes[name] = len(met.plain)
            met.plain.append(plain)
            if met is self._values:
                self.described.append(self._described(text, plain, schema_name if kind == "id" else None))
        if len(met.plain) != met.tree.roots.size:
            met.tree = AvroSchema(*met.plain)

    def _described(self, text: str, plain: Any, id: str | None) -> Description | None:
        """What a schema says of columns, which then have the table's own names."""
        metadata = None if id is None else self._metadata.get(id)
        description = described(text, [] if metadata is None else [c.name for c in metadata.schema.columns])
        if description is not None and description.renamed:
            data = next(field["type"] for field in plain["fields"] if field["name"] == "data")
            for column in (data[-1] if isinstance(data, list) else data)["fields"]:
                column["name"] = description.renamed.get(column["name"], column["name"])
        return description

    def read_keys(self, batch: pa.RecordBatch, left_out: Array) -> tuple[AvroJson, Array, list[tuple[str, Any]]]:
        """Framed keys, which of their heads each has, and what these name."""
        heads = self._source.framing.heads(batch, "key")
        heads.of[left_out] = -1
        names = [("framed", head) for head in heads.heads]
        self._meet(self._keys, "key", names)
        which = np.array([*(self._keys.indexes.get(name, -1) for name in names), -1])[heads.of]
        return AvroJson(batch.column("key"), heads.sizes, self._keys.tree, which), heads.of, names

    def key_problem(self, name: tuple[str, Any]) -> str:
        """Why a key of a schema can't be read."""
        return self._keys.problems.get(name, "The key is not an Avro datum of its schema.")


class _Envelopes:
    """The envelopes of a batch.

    `there` is which messages have one, `message` how many bytes stand in front of the datum, `names` what names the
    schemas, `of` which of these each message has, `ids` the schema ids, `problems` why some can't be read.
    """

    def __init__(self, values: pa.BinaryArray, start: Array) -> None:
        self.there: Array = start >= 0
        self.names: list[tuple[str, Any]] = []
        self.of: Array = np.full(start.size, -1, np.int64)
        self.message: Array = np.zeros(start.size, np.int64)
        self.ids = pa.nulls(start.size, pa.string())
        self.problems: dict[int, str] = {}
        if not self.there.any():
            return
        framed = pa.array(start > 0)
        if pc.any(framed).as_py():
            # Without an end, Arrow computes a negative size for any even number of values.
            after = pc.binary_slice(values.filter(framed), _FRAME, np.iinfo(np.int32).max)
            values = pc.replace_with_mask(values, framed, after)
        values = pc.if_else(pa.array(self.there), values, pa.scalar(None, pa.binary()))
        tape = AvroTape(values, _ENVELOPE)
        at = tape.records(tape.root, len(ENVELOPE["fields"]))
        kind, id, schema, message = (np.ascontiguousarray(at[line]) for line in (1, 3, 4, 5))
        ends = own_view(values).offsets
        whole = (tape.verdict == READ) & (tape.after == ends[1:])
        for index in (kind, id, schema):
            whole &= tape.is_text(index)
        self._note(self.there & ~whole, "The envelope can't be read.")
        types = tape.texts(np.where(whole, kind, np.int32(-1)))
        known = pc.is_in(types, pa.array(_TYPES)).to_numpy(zero_copy_only=False)
        self._note(self.there & whole & ~known, "The envelope is of type neither MD nor DT.")
        has_id, has_schema = tape.is_value(id), tape.is_value(schema)
        self._note(self.there & ~has_id & ~has_schema, "The envelope names no schema.")
        rows = np.flatnonzero(self.there & whole & known & (has_id | has_schema))
        groups = tape.groups(np.ascontiguousarray(np.stack([id, schema])[:, rows]))
        for row in rows[groups.first]:
            text = tape.text(schema[row])
            self.names.append(("id", tape.text(id[row])) if text is None else ("text", text))
        self.of[rows] = groups.of
        self.message[rows] = tape.tokens.start[message[rows]] - ends[:-1][rows] + start[rows]
        self.ids = tape.texts(np.where(whole, id, np.int32(-1)))

    def _note(self, mask: Array, sentence: str) -> None:
        for number in map(int, np.flatnonzero(mask)):
            self.problems.setdefault(number, sentence)


class _Keys:
    """The keys of a batch: framed ones are read, and others may be JSON."""

    def __init__(self, reader: AvroReader, batch: pa.RecordBatch, left_out: Array, problems: dict[int, str]) -> None:
        self._keys = batch.column("key")
        self._tape, of, names = reader.read_keys(batch, left_out)
        for number in map(int, np.flatnonzero((of >= 0) & (self._tape.root < 0))):
            problems.setdefault(number, reader.key_problem(names[of[number]]))

    def names(self, rows: Array) -> pa.StringArray:
        """The names of the key's columns of some messages, as JSON arrays; null where a key says none."""
        picked = pa.array(rows)
        root = np.ascontiguousarray(self._tape.root[rows])
        members = self._tape.members(root)
        framed = string_lists(members.offsets, self._tape.texts(members.names), root >= 0)
        return pc.coalesce(framed, key_names(self._keys.take(picked)))


def _hex(texts: pa.StringArray) -> pa.StringArray:
    """Bytes in base64 as hexadecimal texts."""
    codes = texts.dictionary_encode()
    held = pa.array([base64.b64decode(text) for text in codes.dictionary.to_pylist()], pa.binary())
    return hex_texts(held).take(codes.indices)
