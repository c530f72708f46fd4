"""Values that must not leave the server as they are: masked, hashed or truncated, in snapshots and changes alike.

Options are Debezium's: `column.mask.with.<n>.chars`, `column.mask.hash.<algorithm>.with.salt.<salt>`,
`column.mask.hash.v2...` and `column.truncate.to.<n>.chars`, each with the patterns of its columns as value. A null
stays null. What can't be done (a column without characters, a key column, two rules for one column) is an error
when the table is planned, so that no value leaves unmasked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.errors import OptionError
from headrace.options import shown_name
from headrace.settings import Settings
from headrace.sources.tables.columns import matching

FAMILIES = ("column.mask.with.*", "column.mask.hash.*", "column.truncate.to.*")
_WITH = re.compile(r"column\.mask\.with\.(\d+)\.chars", re.IGNORECASE)
_TRUNCATE = re.compile(r"column\.truncate\.to\.(\d+)\.chars", re.IGNORECASE)
_HASH = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)(?:\.with\.salt\.(.+))?", re.IGNORECASE | re.DOTALL)
_ALGORITHMS = {
    "md5": "md5",
    "sha": "sha1",
    **{f"sha-{n}": f"sha{n}" for n in (1, 224, 256, 384, 512)},
    **{f"sha{n}": f"sha{n}" for n in (1, 224, 256, 384, 512)},
    **{f"sha3-{n}": f"sha3_{n}" for n in (224, 256, 384, 512)},
}
CHARACTERS = frozenset(("string", "uuid", "xml"))
"""Logical types whose values can be masked."""
Change = Callable[[pa.Array, int | None], pa.Array]


class Declared(Protocol):
    """What a mask needs to know of a column's declared type."""

    @property
    def name(self) -> str:
        """The type's name."""

    @property
    def logical(self) -> LogicalType:
        """What the values mean."""

    @property
    def length(self) -> int | None:
        """How many characters a value has at the most."""


@dataclass(frozen=True)
class Rule:
    """One option.

    Args:
        option: its name, fit to be shown.
        columns: patterns of the columns it is for.
        mask: what it does to a value.
    """

    option: str
    columns: tuple[str, ...]
    mask: Mask


@dataclass(frozen=True)
class TableMasks:
    """The masks of one table.

    Args:
        changes: by position of the column, what is done to it and the column's length.
    """

    changes: tuple[tuple[int, Change, int | None], ...] = ()

    def apply(self, texts: list[pa.Array]) -> list[pa.Array]:
        """Columns of canonical text, with those that have a mask changed."""
        if not self.changes:
            return texts
        masked = list(texts)
        for index, change, length in self.changes:
            masked[index] = change(masked[index], length)
        return masked


NO_MASKS = TableMasks()


class Masks:
    """All rules of a source.

    Args:
        rules: one per option.
    """

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self._rules = rules

    @classmethod
    def of(cls, settings: Settings) -> Masks:
        """The rules that the options say.

        Raises:
            OptionError: a name is not of the form that its family has, an algorithm is unknown, or a salt came without
            its capital letters.
        """
        salt: str = settings.get("column_mask_salt", "")
        given: Mapping[str, tuple[str, ...]] = {
            name: columns for family in FAMILIES for name, columns in (settings.get(family) or {}).items()
        }
        return cls(tuple(Rule(shown_name(name), columns, mask_of(name, salt)) for name, columns in given.items()))

    def of_table(self, schema: TableSchema, natives: Sequence[Declared]) -> TableMasks:
        """What is done to the columns of a table.

        Raises:
            OptionError: a rule matches a column of the key or one that holds no characters, or two match one column.
        """
        if not self._rules:
            return NO_MASKS
        masks = []
        for index, (column, native) in enumerate(zip(schema.columns, natives, strict=True)):
            rule = self._rule(schema.id, column.name)
            if rule is None:
                continue
            if column.name in schema.key:
                raise OptionError(
                    f"Option '{rule.option}' matches column '{column.name}' of table '{schema.id.path}', which is in "
                    "the table's key and would stand there as it is.",
                    remedy="Set 'message_key_columns' to other columns, or leave the column out of the option.",
                )
            if native.logical.kind not in CHARACTERS:
                raise OptionError(
                    f"Option '{rule.option}' matches column '{column.name}' of table '{schema.id.path}', whose type "
                    f"{native.name} has no characters.",
                    remedy="Name character columns only; 'column_exclude_list' keeps any column back.",
                )
            masks.append((index, _change(rule.mask), native.length))
        return TableMasks(tuple(masks))

    def described(self, schema: TableSchema, natives: Sequence[Declared]) -> TableSchema:
        """The schema with masked columns as plain text, because a masked uniqueidentifier or xml is none any more.

        Raises:
            OptionError: as `of_table`.
        """
        columns = list(schema.columns)
        for index, _, length in self.of_table(schema, natives).changes:
            rule = self._rule(schema.id, columns[index].name)
            assert rule is not None
            columns[index] = rule.mask.described(replace(columns[index], logical=LogicalType("string")), length)
        return replace(schema, columns=tuple(columns))

    def _rule(self, table: TableId, column: str) -> Rule | None:
        rules = [rule for rule in self._rules if matching(rule.columns, table, column) is not None]
        if len(rules) > 1:
            raise OptionError(
                f"Options '{rules[0].option}' and '{rules[1].option}' both match column '{column}' of table "
                f"'{table.path}'.",
                remedy="Leave the column out of one of them.",
            )
        return rules[0] if rules else None


@dataclass(frozen=True)
class Mask:
    """What an option does to a value.

    Args:
        kind: `asterisks`, `truncate` or `hash`.
        size: how many asterisks, or how many characters stay.
        algorithm: of a hash, as Python's `hashlib` names it.
        salt: of a hash.
        serialized: whether the value is hashed as Java serialises it, and not in UTF-8.
    """

    kind: Literal["asterisks", "truncate", "hash"]
    size: int = 0
    algorithm: str = ""
    salt: str = field(default="", repr=False)
    serialized: bool = False

    def described(self, column: Column, length: int | None) -> Column:
        """The column, which says what was done to its values.

        Args:
            column: of text.
            length: how many characters the table allows it.
        """
        if self.kind != "truncate":
            return replace(column, masked=True)
        return column if length is not None and length <= self.size else replace(column, truncated_to=self.size)


def mask_of(name: str, salt: str) -> Mask:
    """What an option does, by its name; `salt` is the option 'column_mask_salt'.

    Raises:
        OptionError: a name is not of the form that its family has, an algorithm is unknown, or there is no salt.
    """
    if match := _WITH.fullmatch(name):
        return Mask("asterisks", int(match[1]))
    if match := _TRUNCATE.fullmatch(name):
        return Mask("truncate", int(match[1]))
    match = _HASH.fullmatch(name)
    if match is None:
        raise OptionError(
            f"Unknown option '{shown_name(name)}' of a mask.",
            remedy="Known are column.mask.with.<n>.chars, column.truncate.to.<n>.chars and "
            "column.mask.hash.v2.<algorithm>.with.salt.<salt>.",
        )
    version, algorithm, mask_salt = match.groups()
    if algorithm.lower() not in _ALGORITHMS:
        raise OptionError(
            f"Option '{shown_name(name)}' names an unknown algorithm.", remedy="Take SHA-256, SHA-512 or SHA3-256."
        )
    return Mask(
        "hash",
        algorithm=_ALGORITHMS[algorithm.lower()],
        salt=_salt(shown_name(name), mask_salt, salt),
        serialized=not version,
    )


def _change(mask: Mask) -> Change:
    if mask.kind == "asterisks":
        asterisks = "*" * mask.size
        return lambda texts, _: pc.if_else(pc.is_null(texts), pa.scalar(None, pa.string()), asterisks)
    if mask.kind == "truncate":
        return lambda texts, _: pc.utf8_slice_codeunits(texts, 0, mask.size)
    return _hashing(mask.algorithm, mask.salt.encode(), serialized if mask.serialized else _utf8)


def _salt(option: str, own_salt: str | None, apart: str) -> str:
    """The salt of a hash.

    Spark makes the names of options lower-case, and a salt of other letters gives other hashes without anybody seeing
    it. So a salt in a name is believed when it has a capital letter, or no letters at all.
    """
    if apart:
        if own_salt is not None and own_salt.lower() != apart.lower():
            raise OptionError(
                f"Option '{option}' has another salt than 'column_mask_salt'.",
                remedy="Leave '.with.salt...' out of the name.",
            )
        return apart
    if own_salt is None:
        raise OptionError(f"Option '{option}' has no salt.", remedy="Set 'column_mask_salt'.")
    if own_salt == own_salt.lower() != own_salt.upper():
        raise OptionError(
            f"The salt in the name of option '{option}' is all in lower case, which may be Spark's doing: it hands "
            "names of options over so.",
            remedy="Set 'column_mask_salt' to the salt; the name may keep it.",
        )
    return own_salt


def _hashing(algorithm: str, salt: bytes, written: Callable[[str], bytes]) -> Change:
    """Hashes in hex, cut to the column's length. Python hashes each distinct value of a batch once: Arrow can't."""
    salted = hashlib.new(algorithm, salt, usedforsecurity=False)

    def change(texts: pa.Array, length: int | None) -> pa.Array:
        encoded = pc.dictionary_encode(texts)
        words = []
        for text in encoded.dictionary.to_pylist():
            digest = salted.copy()
            digest.update(written(text))
            words.append(digest.hexdigest()[:length] if length else digest.hexdigest())
        return pa.array(words, pa.string()).take(encoded.indices)

    return change


def _utf8(text: str) -> bytes:
    return text.encode()


def serialized(text: str) -> bytes:
    """A text as Java's ObjectOutputStream writes it, which is what the first version of the hash is made of.

    By the Java Object Serialization Specification: magic, version, the tag of a string, its size, and modified UTF-8.
    """
    # Modified UTF-8 writes each half of a surrogate pair apart, and NUL in two bytes.
    halves = text.encode("utf-16-be", "surrogatepass")
    units = "".join(chr(int.from_bytes(halves[i : i + 2], "big")) for i in range(0, len(halves), 2))
    data = units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    size = b"\x74" + len(data).to_bytes(2, "big") if len(data) < 1 << 16 else b"\x7c" + len(data).to_bytes(8, "big")
    return b"\xac\xed\x00\x05" + size + data
