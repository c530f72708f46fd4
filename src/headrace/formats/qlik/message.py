"""Qlik's messages of one batch: their parts, and why some can't be read. `json_message` reads those that are JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.change_columns import numbered, upper
from headrace.formats.json_messages import JsonMessages, key_names, unread
from headrace.formats.qlik.metadata import MAGIC, MetadataMessage, read_metadata
from headrace.wire.json_exact import ABSENT, NULL, OBJECT
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d", "REFRESH": "r"}
"""The operations of data messages, and what they are in change rows."""
_OPERATION_NUMBERS = {word: number for number, word in enumerate(OPERATIONS)}
C, U, D, R = range(4)

BODY = ("data", "beforeData", "headers", "tableStructure", "schema", "table", "schemaId")
"""The parts of a message inside its envelope."""
_OBJECTS = BODY[:4]
HEADERS = (
    "operation", "changeSequence", "timestamp", "streamPosition", "transactionId", "changeMask", "columnMask",
    "transactionEventCounter", "transactionLastEvent", "externalSchemaId", "schema", "table",
)  # fmt: skip
"""The headers of a data message."""
_ENVELOPE = Names([("magic", "type", "messageSchemaId", "message")])
_TYPES = ("DT", "MD")


@dataclass
class Messages:
    """What the engine found in a batch.

    Args:
        tape: where everything is.
        body: its parts.
        head: its headers.
        schema_id: the id by which a message names its metadata; null where it names none.
        columns: what Avro's schemas say of the columns of data, by message: the number of a description; -1 in JSON.
        is_metadata: which messages are metadata.
        metadata: reads the metadata of a message; None where it is none.
        masks: the texts of changeMask and columnMask.
        no_headers: the sentence of a message without headers.
        key_names: the key columns that the Kafka keys of some messages name, as JSON arrays; null where one names none.
        problems: why messages can't be read, as far as their form says it.
    """

    tape: Tape
    body: JsonMessages
    head: JsonMessages
    schema_id: pa.StringArray
    columns: Array
    is_metadata: Array
    metadata: Callable[[int], MetadataMessage | None]
    masks: tuple[pa.StringArray, pa.StringArray]
    no_headers: str
    key_names: Callable[[Array], pa.StringArray]
    problems: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operation = self.texts("operation")
        self.has_headers: Array = self.tape.kinds(self.body.every("headers")) == OBJECT
        self.has_operation: Array = operation.is_valid().to_numpy(zero_copy_only=False)
        self.op: Array = numbered(operation, _OPERATION_NUMBERS, lambda word: upper(word.strip(" ")))
        self.data, self.before = self._object("data"), self._object("beforeData")
        """The images; -1 where a message has none."""

    def _object(self, name: str) -> Array:
        at = self.body.every(name)
        return np.where(self.tape.kinds(at) == OBJECT, at, np.int32(-1))

    def note(self, mask: Array, sentence: str | Callable[[int], str]) -> None:
        """Say of messages why they can't be read, where nothing was said yet."""
        for number in map(int, np.flatnonzero(mask)):
            if number not in self.problems:
                self.problems[number] = sentence if isinstance(sentence, str) else sentence(number)

    def index(self, name: str, rows: Array) -> Array:
        return self.head.index(name, rows)

    def texts(self, name: str) -> pa.StringArray:
        return self.head.texts(name)

    def text(self, name: str, number: int) -> str:
        return self.head.text(name, number) or ""

    def said(self, name: str) -> pa.StringArray:
        """The table's schema or name, as the message or its headers say it."""
        of_body = self.body.texts(name)
        of_head = self.texts(name)
        return of_body if of_head.null_count == len(of_head) else pc.coalesce(of_body, of_head)


def json_messages(batch: pa.RecordBatch) -> Messages:
    values = batch.column("value")
    tape = Tape(values)
    magic, kind, id, message = tape.fields(tape.root, _ENVELOPE)
    enveloped = tape.is_value(magic)
    outer = JsonMessages(tape, tape.root, BODY)
    body = JsonMessages(tape, np.where(enveloped, message, tape.root), BODY) if enveloped.any() else outer
    is_form = (tape.kinds(tape.root) == OBJECT) & np.isin(tape.kinds(message), (ABSENT, NULL, OBJECT))
    is_form &= outer.holds(OBJECT, *_OBJECTS) & body.holds(OBJECT, *_OBJECTS)
    head = JsonMessages(tape, body.every("headers"), HEADERS)
    types = numbered(tape.texts(kind), {word: n for n, word in enumerate(_TYPES)}, str)
    schema_id = np.where(enveloped, id, body.every("schemaId"))
    has_table_structure = tape.is_value(body.every("tableStructure"))
    messages = Messages(
        tape,
        body,
        head,
        tape.texts(schema_id),
        np.full(len(values), -1),
        is_form & ((types == _TYPES.index("MD")) | (~enveloped & has_table_structure)),
        lambda number: metadata_of_json(values[number].as_py()),
        (head.texts("changeMask"), head.texts("columnMask")),
        "The message has no headers.",
        lambda rows: key_names(batch.column("key").take(pa.array(rows))),
    )
    present = values.is_valid().to_numpy(zero_copy_only=False)
    messages.note(
        present & ~is_form,
        lambda number: unread(values[number].as_py(), int(tape.verdict[number]), "in one of Qlik's forms"),
    )
    if enveloped.any():
        words = tape.texts(magic)
        is_qlik = pc.fill_null(pc.equal(words, MAGIC.decode()), False).to_numpy(zero_copy_only=False)
        messages.note(
            enveloped & ~is_qlik,
            lambda number: f"The magic of the envelope is not {MAGIC.decode()}: {words[number].as_py()[:80]}.",
        )
        messages.note(enveloped & (types < 0), "The envelope is of type neither MD nor DT.")
    return messages


def metadata_of_json(value: bytes) -> MetadataMessage | None:
    """The metadata of a message as JSON; None where it is none."""
    try:
        return read_metadata(json.loads(value))
    except (ValueError, RecursionError):
        return None
