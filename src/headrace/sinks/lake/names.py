"""What the mirror of a source table is called: patterns, and text forms under which two names never become one."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass

from headrace.changes.table import TableId
from headrace.errors import OptionError, SinkError

PLACEHOLDERS = frozenset({"database", "schema", "table"})
_PLAIN_IN_PATH = re.compile(r"[\w\-.]", re.ASCII)
_PLAIN_IN_NAME = re.compile(r"\w", re.ASCII)
_LIKE_ESCAPE = re.compile(r"_[xX][0-9a-fA-F]{4}")
_PART = r"(?:`(?:[^`]|``)+`|[^.`]+)"
_DOTTED = re.compile(rf"{_PART}(?:\.{_PART})*")


def escaped(name: str) -> str:
    """One name as one segment of a path: letters, digits, `_`, `-` and inner dots stay, other bytes become `~` and two
    hex digits, so that no file system or URL takes part of a name for something else.
    """
    out = []
    for index, letter in enumerate(name):
        # A leading dot would hide the folder, or leave it.
        plain = _PLAIN_IN_PATH.fullmatch(letter) and (index or letter != ".")
        out.append(letter if plain else "".join(f"~{byte:02x}" for byte in letter.encode()))
    return "".join(out)


def identifier(name: str) -> str:
    """One name as every catalogue takes it: letters, digits and `_` of ASCII stay, any other character becomes
    `_x0020_`, with its code point in hex digits.

    A `_` that reads like the beginning of such an escape is written as one, so that two names never become one.
    """
    out = []
    for index, letter in enumerate(name):
        plain = _PLAIN_IN_NAME.fullmatch(letter) and not _LIKE_ESCAPE.match(name, index)
        out.append(letter if plain else f"_x{ord(letter):04x}_")
    return "".join(out)


@dataclass(frozen=True)
class NamePattern:
    """A name in a catalogue with `{database}`, `{schema}` and `{table}` in it.

    Args:
        text: as the user wrote it.
        parts: what stands between its dots.
    """

    text: str
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, option: str) -> NamePattern:
        """Read a pattern. A part in backticks may have dots in it.

        Args:
            text: the pattern.
            option: the option that it is given by, for messages.

        Raises:
            OptionError: it has an empty part, or a placeholder that does not exist.
        """
        found = re.findall(_PART, text) if _DOTTED.fullmatch(text) else []
        parts = tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in found)
        if not parts or not all(_is_sound(part) for part in parts):
            raise OptionError(
                f"'{text}' is not a valid {option}.",
                remedy="Write names with dots between them, one with a dot in backticks. "
                "Placeholders are {database}, {schema} and {table}.",
                option=option,
            )
        return cls(text, parts)

    def of(self, id: TableId, written: Callable[[str], str]) -> tuple[str, ...]:
        """The parts of the name that a table has.

        Args:
            id: the table, by its name in the sink.
            written: how the table's own names are written; the rest stands as it is.

        Raises:
            SinkError: a part is empty, because the table has no schema, say.
        """
        values = {"database": written(id.database), "schema": written(id.schema), "table": written(id.name)}
        parts = tuple(part.format(**values) for part in self.parts)
        if not all(parts):
            raise SinkError(
                f"'{self.text}' gives table {id.path or 'of flat rows'} an empty name.",
                remedy="Leave out the placeholder that is empty: databases without schemas have no {schema}, "
                "flat rows have none of them.",
            )
        return parts


def _is_sound(part: str) -> bool:
    try:
        fields = [(name, how, kind) for _, name, how, kind in string.Formatter().parse(part) if name is not None]
    except ValueError:
        return False
    return bool(part.strip()) and all(name in PLACEHOLDERS and not how and not kind for name, how, kind in fields)
