"""Messages that are JSON objects: the fields of a batch's, the columns that their keys name, why one can't be read."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.wire.json_exact import ABSENT, MORE, NULL, OBJECT
from headrace.wire.json_writer import string_lists
from headrace.wire.names import Names
from headrace.wire.spans import Array
from headrace.wire.tape import Tape

_HALF_A_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)


class JsonMessages:
    """The fields of a batch's messages.

    Args:
        tape: where the messages are.
        objects: the indexes of what has the fields.
        names: of the fields; `at` has a line with the indexes of each.
    """

    def __init__(self, tape: Tape, objects: Array, names: Sequence[str]) -> None:
        self.tape = tape
        self.at: Array = tape.fields(objects, _one_set(tuple(names)))
        self._line = {name: line for line, name in enumerate(names)}

    def every(self, name: str) -> Array:
        lines: Array = self.at[self._line[name]]
        return lines

    def index(self, name: str, rows: Array) -> Array:
        return np.ascontiguousarray(self.every(name)[rows])

    def texts(self, name: str, rows: Array | None = None) -> pa.StringArray:
        return self.tape.texts(self.every(name) if rows is None else self.index(name, rows))

    def text(self, name: str, number: int) -> str | None:
        return self.tape.text(self.every(name)[number])

    def holds(self, kind: int, *names: str) -> Array:
        """Which messages have values of one kind in these fields, or none."""
        lines = self.at[[self._line[name] for name in names]]
        is_held: Array = np.isin(self.tape.kinds(lines), (ABSENT, NULL, kind)).all(axis=0)
        return is_held


@functools.cache
def _one_set(names: tuple[str, ...]) -> Names:
    return Names([names])


def filled(tape: Tape, at: Array) -> Array:
    """The indexes of objects that have members; -1 for all else."""
    has_members = (tape.kinds(at) == OBJECT) & (tape.tokens.after[at] > at + 1)
    return np.where(has_members, at, np.int32(-1))


def key_names(keys: pa.BinaryArray) -> pa.StringArray:
    """The names in keys that are JSON objects, as JSON arrays; null for other keys."""
    if keys.null_count == len(keys):
        return pa.nulls(len(keys), pa.string())
    tape = Tape(keys)
    members = tape.members(tape.root)
    return string_lists(members.offsets, tape.texts(members.names), tape.kinds(tape.root) == OBJECT)


def why_not_json(text: bytes, part: str) -> str | None:
    """Why a text of UTF-8 that looks like JSON is none; None where nothing shows it.

    Args:
        text: a message's value or key that was not read.
        part: which of them.
    """
    if text.startswith(codecs.BOM_UTF8):
        return f"The {part} begins with a byte order mark, which JSON does not have. Let its writer leave that out."
    if _HALF_A_PAIR.search(text):
        return f"The {part} has one half of a surrogate pair, which is not a character. Let its writer drop it."
    return None


def unread(value: bytes, verdict: int, form: str) -> str:
    """Why a value is not a JSON object of a form.

    Args:
        value: the message's.
        verdict: the tape's on it.
        form: what it is not, to be read after `no JSON object`.
    """
    try:
        value.decode()
    except UnicodeDecodeError:
        return "The value is not UTF-8."
    if (why := why_not_json(value, "value")) is not None:
        return why
    if verdict == MORE:
        return "Unexpected data after the JSON object."
    return f"The value is not a JSON object {form}."
