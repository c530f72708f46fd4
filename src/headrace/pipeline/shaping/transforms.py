"""Transforms: which rows and columns of a table go on, what is computed beside them, and what is masked.

```yaml
transforms:
  - tables: dbo.orders
    filter: "status <> 'draft'"
    computed_columns: {total: "price * quantity"}
    exclude_columns: [note]
  - tables: "dbo.*"
    column.mask.hash.v2.SHA-256: [email]
    column_mask_salt: "${env:SALT}"
```

All transforms that are for a table are applied, in the order of the list, each to what the one before it made. Inside
one the order is: the filter, computed columns, masks, then the choice of columns. Tables are named as in the source,
whatever a sink's routes make of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.changes import TableId
from headrace.changes.table_pattern import EVERY_TABLE, TablePattern, matching, table_patterns
from headrace.errors import OptionError
from headrace.options import OTHER_NAMES, Names, shown_name
from headrace.settings import Settings, option
from headrace.sources.tables.masks import FAMILIES, Mask, mask_of

_CHOOSES, _PROTECTS = Names("columns", "chooses"), Names("columns", "protects")
_SHA2 = {"sha224": 224, "sha256": 256, "sha384": 384, "sha512": 512}
_HASHES = ("md5", "sha1", *_SHA2)


def computed_columns(given: Any) -> tuple[tuple[str, str], ...]:
    """Names and SQL expressions from a mapping.

    Raises:
        ValueError: it is not a mapping of names to texts.
    """
    if not isinstance(given, Mapping):
        raise ValueError("write {name: SQL expression}")
    for name, text in given.items():
        if not isinstance(text, str) or not text.strip() or not str(name):
            raise ValueError(f"'{name}' has no SQL expression")
    return tuple((str(name), text.strip()) for name, text in given.items())


class TransformSettings(Settings):
    tables: tuple[TablePattern, ...] = option(
        "The source tables, by name, shell glob or regular expression after `re:`, held against `schema.table` and "
        "`database.schema.table` whatever the case. Where a table is named in full, columns that it lacks are an "
        "error.",
        kind=table_patterns,
        default=EVERY_TABLE,
        names=Names("tables", "chooses"),
    )
    filter: str | None = option(
        "A predicate of Spark SQL over the row's columns; rows for which it is not true are left out. An update that "
        "makes it true becomes a create, one that ends that becomes a delete.",
        default=None,
    )
    computed_columns: tuple[tuple[str, str], ...] = option(
        "New columns, as a mapping of names to expressions of Spark SQL over the row's columns. A name that is there "
        "already is replaced.",
        kind=computed_columns,
        default=(),
        names=OTHER_NAMES,
    )
    include_columns: tuple[str, ...] = option(
        "The only columns that go on, beside those that this transform computes. The key's must be among them.",
        default=(),
        names=_CHOOSES,
    )
    exclude_columns: tuple[str, ...] = option(
        "Columns that do not go on. None of the key.",
        default=(),
        names=_PROTECTS,
    )
    column_mask_with: Mapping[str, tuple[str, ...]] = option(
        "`column.mask.with.<n>.chars`: character columns whose values become n asterisks. Null stays null.",
        name="column.mask.with.*",
        kind=list,
        default={},
        names=_PROTECTS,
    )
    column_mask_hash: Mapping[str, tuple[str, ...]] = option(
        "`column.mask.hash.v2.<algorithm>`: character columns whose values become a salted hash in hex, cut to the "
        "column's length, the same as the source's option of that name makes. MD5, SHA-1, SHA-224, SHA-256, SHA-384 "
        "and SHA-512.",
        name="column.mask.hash.*",
        kind=list,
        default={},
        names=_PROTECTS,
    )
    column_truncate_to: Mapping[str, tuple[str, ...]] = option(
        "`column.truncate.to.<n>.chars`: character columns whose values keep their first n characters (code points).",
        name="column.truncate.to.*",
        kind=list,
        default={},
        names=_PROTECTS,
    )
    column_mask_salt: str = option(
        "The salt of hashes.",
        default="",
    )


@dataclass(frozen=True)
class ColumnMask:
    """One mask.

    Args:
        option: its name, fit to be shown.
        columns: names of columns.
        mask: what it does.
    """

    option: str
    columns: tuple[str, ...]
    mask: Mask

    def sql(self, text: str, salt: str, length: int | None) -> str:
        """Spark SQL that masks a text.

        Args:
            text: SQL for it.
            salt: SQL for the salt, which stands in no expression itself.
            length: of the column, in characters.
        """
        if self.mask.kind == "asterisks":
            return f"if({text} is null, null, repeat('*', {self.mask.size}))"
        if self.mask.kind == "truncate":
            return f"substr({text}, 1, {self.mask.size})"
        salted = f"cast(concat({salt}, {text}) as binary)"
        algorithm = self.mask.algorithm
        digest = f"sha2({salted}, {_SHA2[algorithm]})" if algorithm in _SHA2 else f"{algorithm}({salted})"
        return f"substr({digest}, 1, {length})" if length else digest


@dataclass(frozen=True)
class Transform:
    """One entry of a list of transforms.

    Args:
        label: how messages call it (`transform 2`).
        tables: for which source tables.
        filter: SQL; None for none.
        computed: names and SQL.
        masks: in the order of the file.
        include: the only columns; empty for all.
        exclude: columns that are left out.

    Raises:
        OptionError: it does nothing, or its options contradict each other.
    """

    label: str
    tables: tuple[TablePattern, ...] = EVERY_TABLE
    filter: str | None = None
    computed: tuple[tuple[str, str], ...] = ()
    masks: tuple[ColumnMask, ...] = field(default=())
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.include and self.exclude:
            raise OptionError("Options 'include_columns' and 'exclude_columns' are both given.", remedy="Keep one.")
        if not (self.filter or self.computed or self.masks or self.include or self.exclude):
            raise OptionError(
                f"{self.label.capitalize()} does nothing.",
                remedy="Give filter, computed_columns, include_columns, exclude_columns or a mask.",
            )
        masked: dict[str, str] = {}
        for mask in self.masks:
            for column in mask.columns:
                if column in masked:
                    raise OptionError(
                        f"Options '{masked[column]}' and '{mask.option}' both name column '{column}'.",
                        remedy="Leave the column out of one of them.",
                    )
                masked[column] = mask.option

    @classmethod
    def of(cls, settings: TransformSettings, label: str) -> Transform:
        """The transform that the options say.

        Raises:
            OptionError: they contradict each other, or a mask is unknown.
        """
        masks = tuple(
            ColumnMask(shown_name(name), columns, _mask(name, settings.column_mask_salt))
            for family in FAMILIES
            for name, columns in settings.get(family).items()
        )
        if settings.column_mask_salt and not any(mask.mask.kind == "hash" for mask in masks):
            raise OptionError("Option 'column_mask_salt' is for hashes only.", remedy="Remove it, or add a hash.")
        return cls(
            label=label,
            tables=settings.tables,
            filter=(settings.filter or "").strip() or None,
            computed=settings.computed_columns,
            masks=masks,
            include=settings.include_columns,
            exclude=settings.exclude_columns,
        )

    @property
    def named_columns(self) -> list[tuple[str, Names, tuple[str, ...]]]:
        masks = [(mask.option, _PROTECTS, mask.columns) for mask in self.masks]
        lists = [("include_columns", _CHOOSES, self.include), ("exclude_columns", _PROTECTS, self.exclude)]
        return [*masks, *lists]

    @property
    def has_sql(self) -> bool:
        """Whether it has expressions, which only Spark can read."""
        return bool(self.filter or self.computed)

    def names(self, table: TableId) -> bool:
        pattern = matching(self.tables, table)
        return pattern is not None and pattern.is_name

    def matches(self, table: TableId) -> bool:
        return matching(self.tables, table) is not None


def _mask(name: str, salt: str) -> Mask:
    # A file keeps the letters of a name as they are, so a salt in it is believed.
    in_name = ".with.salt."
    if not salt and in_name in name.lower():
        at = name.lower().index(in_name)
        name, salt = name[:at], name[at + len(in_name) :]
    mask = mask_of(name, salt)
    if mask.kind == "hash" and (mask.serialized or mask.algorithm not in _HASHES):
        raise OptionError(
            f"Option '{shown_name(name)}' can't be done by a transform.",
            remedy="Write column.mask.hash.v2.SHA-256, or mask the column in the source.",
        )
    return mask
