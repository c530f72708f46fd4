"""How a message says which Avro schema it follows: the option `framing`.

A message part is cut into its head (what names the schema) and its body (the Avro datum). Heads are bytes; few differ.

| framing | value bytes | schema named by |
|---|---|---|
| `confluent` | 00, id (4 bytes), datum | the id |
| `confluent-header` | datum | header `__value_schema_id`: 00 and id (4 bytes), or 01 and GUID (16) |
| `apicurio8` | 00, id (8 bytes), datum | the id (Apicurio's `globalId`) |
| `apicurio-header` | datum | header `apicurio.value.globalId` or `apicurio.value.contentId` (8 bytes) |
| `none` | datum | a header of the above, else the option `value_schema` or the only schema of `registry` |

Keys alike, with `key` for `value`; an id is big-endian. With `apicurio8` a part of less than nine bytes can only have
an id of four, which is what a key has that another converter wrote.

Source: Confluent's and Apicurio's documentation of their wire formats.

`headrace decode` recognises such a message by its frame, or by the header with the schema's id.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.recognition import Evidence, FormatOptions, Sample
from headrace.formats.registry.client import SchemaRef
from headrace.wire.spans import Array

Side = Literal["key", "value"]
SIDES: tuple[Side, ...] = ("key", "value")

FRAMINGS = ("confluent", "confluent-header", "apicurio8", "apicurio-header", "none")

LONGEST = 9
"""How many bytes in front of a datum can name its schema."""
_GIVEN = b"n"
_CONFLUENT, _GLOBAL, _CONTENT = "__{}_schema_id", "apicurio.{}.globalId", "apicurio.{}.contentId"
_LETTERS = {_CONFLUENT: b"s", _GLOBAL: b"g", _CONTENT: b"c"}


@dataclass
class Heads:
    """What names the schemas of a batch's keys or values.

    Args:
        heads: the different heads. Those of headers have a letter in front that says which header it was.
        of: the number of each message's head; -1 where the part is null, or names no schema.
        sizes: how many bytes of each stand in front of its datum.
    """

    heads: list[bytes]
    of: Array
    sizes: Array


@dataclass(frozen=True)
class Framing:
    """One framing.

    Args:
        name: one of `FRAMINGS`.
        given_key: whether the option `key_schema` names a schema for keys (framing `none` only).
        given_value: the same for values.
    """

    name: str
    given_key: bool = False
    given_value: bool = False

    @property
    def in_front(self) -> bool:
        """Whether ids stand in front of the data, and no header is needed."""
        return self.name in ("confluent", "apicurio8")

    def heads(self, batch: pa.RecordBatch, side: Side) -> Heads:
        """The heads of a batch's messages.

        Args:
            batch: columns `key`, `value` and `headers`.
            side: which part of them.
        """
        data, rows = batch.column(side), batch.num_rows
        result = Heads([], np.full(rows, -1, np.int64), np.zeros(rows, np.int64))
        size = pc.fill_null(pc.binary_length(data), -1).to_numpy(zero_copy_only=False)
        if self.in_front:
            named = pc.fill_null(pc.equal(pc.binary_slice(data, 0, 1), b"\0"), False).to_numpy(zero_copy_only=False)
            long = (size >= LONGEST) if self.name == "apicurio8" else np.zeros(rows, np.bool_)
            for length, these in ((5, ~long), (LONGEST, long)):
                these = these & named & (size >= 5)
                _add(result, pc.binary_slice(data, 0, length), these, b"")
                result.sizes[these] = length
            return result
        given = self.given_key if side == "key" else self.given_value
        for header in self._headers:
            _add(result, _header(batch, header.format(side)), (size >= 0) & (result.of < 0), _LETTERS[header])
        if self.name == "apicurio-header":
            # A JSON datum has another encoding header, and no Avro in it.
            encoding = pc.fill_null(_header(batch, f"apicurio.{side}.encoding"), b"BINARY")
            result.of[[value.upper() != b"BINARY" for value in encoding.to_pylist()]] = -1
        elif self.name == "none" and given:
            result.of[(size >= 0) & (result.of < 0)] = len(result.heads)
            result.heads.append(_GIVEN)
        return result

    @property
    def _headers(self) -> tuple[str, ...]:
        of_confluent, of_apicurio = (_CONFLUENT,), (_GLOBAL, _CONTENT)
        return {"confluent-header": of_confluent, "apicurio-header": of_apicurio}.get(
            self.name, of_confluent + of_apicurio
        )

    def problem(self, batch: pa.RecordBatch, side: Side, number: int) -> str:
        """Why a message part that has no head can't be read.

        Args:
            batch: columns `key`, `value` and `headers`.
            side: which part.
            number: of which message.
        """
        data: bytes = batch.column(side)[number].as_py()
        if self.in_front:
            if data[:1] != b"\0":
                return f"The {side} does not begin with the byte 00 and a schema id."
            return f"The {side} is shorter than a schema id."
        if self.name == "confluent-header":
            return f"The {side} has no header __{side}_schema_id."
        if self.name == "apicurio-header":
            one = batch.slice(number, 1)
            if any(_header(one, name.format(side))[0].is_valid for name in (_GLOBAL, _CONTENT)):
                return f"The {side} is not encoded as binary Avro."
            return f"The {side} has no header apicurio.{side}.globalId or contentId."
        return f"The {side} names no schema, and the options give none for it."

    def ref(self, head: bytes) -> SchemaRef | None:
        """The schema that a head names; None for the one given by an option, and for what is not an id."""
        if self.name == "confluent":
            return SchemaRef("id", str(int.from_bytes(head[1:], "big")))
        if self.name == "apicurio8":
            return SchemaRef("globalId" if len(head) == LONGEST else "id", str(int.from_bytes(head[1:], "big")))
        kind, rest = head[:1], head[1:]
        if kind in (b"g", b"c") and len(rest) == 8:
            return SchemaRef("globalId" if kind == b"g" else "contentId", str(int.from_bytes(rest, "big")))
        if kind == b"s" and len(rest) == 5 and rest[0] == 0:
            return SchemaRef("id", str(int.from_bytes(rest[1:], "big")))
        if kind == b"s" and len(rest) == 17 and rest[0] == 1:
            return SchemaRef("guid", str(uuid.UUID(bytes=rest[1:])))
        return None

    @staticmethod
    def is_given(head: bytes) -> bool:
        """Whether the head stands for the schema that an option gives."""
        return head == _GIVEN


def _add(all_heads: Heads, values: pa.BinaryArray, these: Array, letter: bytes) -> None:
    rows = np.flatnonzero(these & values.is_valid().to_numpy(zero_copy_only=False))
    if rows.size:
        chosen = values.take(pa.array(rows)).dictionary_encode()
        all_heads.of[rows] = chosen.indices.to_numpy() + len(all_heads.heads)
        all_heads.heads += [letter + value for value in chosen.dictionary.to_pylist()]


def _header(batch: pa.RecordBatch, name: str) -> pa.BinaryArray:
    """The last header of that name of each message, as Kafka's `lastHeader`; null without one."""
    headers = batch.column("headers")
    every = pc.list_flatten(headers)
    hits = np.flatnonzero(pc.fill_null(pc.equal(pc.struct_field(every, "key"), name), False))
    indexes = np.full(batch.num_rows, -1, np.int64)
    indexes[pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)[hits]] = hits
    return pc.struct_field(every, "value").take(pa.array(indexes, mask=indexes < 0))


_CONFLUENT_HEADERS = frozenset(("__value_schema_id", "__key_schema_id"))
_APICURIO_HEADERS = frozenset(("apicurio.value.globalId", "apicurio.value.contentId"))


def recognise_framed(message: Sample, mark: bool, of: str) -> Evidence | None:
    """Why the message may be of a format whose messages name their schemas; None for one without a frame.

    Args:
        message: the message.
        mark: whether its value has a mark that only messages of the format have; else it may be of another one.
        of: the mark in words.
    """
    frame = _frame(message)
    if frame is None:
        return None
    description, framing = frame
    return Evidence(f"{description}, {of if mark else 'but nothing that tells whose'}", framing, sure=mark)


def _frame(message: Sample) -> tuple[str, FormatOptions] | None:
    """The frame in words, and the options by which it is read."""
    value = message.value
    if value is None or message.is_object:
        return None
    if _CONFLUENT_HEADERS & set(message.headers):
        return "a schema id in Confluent's record header", (("framing", "confluent-header"),)
    if _APICURIO_HEADERS & set(message.headers):
        return "a schema id in Apicurio's record header", (("framing", "apicurio-header"),)
    if value[:5] == bytes(5) and any(value[5:9]) and len(value) > 9:
        # Registries count from 1, so these are the upper half of an id of eight bytes.
        return "a zero byte and a schema id of eight bytes", (("framing", "apicurio8"),)
    if value[:1] == b"\0" and len(value) > 5 and any(value[1:5]) and value[1] < 0x80:
        return "a zero byte and a schema id of four bytes", ()
    return None
