"""The images of rows, as their statements in the redo have them.

Per-row Python, because LogMiner prints a statement per row: parsing gives a dictionary for each, and values are decoded
from them one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from headrace.changes import Operation
from headrace.changes.texts import key_text
from headrace.errors import CaptureError
from headrace.sources.offset import Key
from headrace.sources.oracle.assembly import Event
from headrace.sources.oracle.captured_table import OracleTable
from headrace.sources.oracle.types import NativeType
from headrace.sources.tables.masks import Change, Masks

RowImage = list[tuple[str, str | None]]
"""Columns and their canonical texts."""


@dataclass(slots=True)
class RowImages:
    """The images of a changed row.

    Args:
        before, after: the row; None before an insert and after a delete.
        key: its key; None without one.
        key_text: the key as one text.
        changed: the columns that an update sets; None for other changes.
    """

    before: RowImage | None = None
    after: RowImage | None = None
    key: RowImage | None = None
    key_text: str | None = None
    changed: list[str] | None = None

    @property
    def size(self) -> int:
        """About how many characters the images have."""
        return sum(len(text) for image in (self.before, self.after) if image for _, text in image if text)


class UnreadableValue(CaptureError):
    """A value is not of its column's form. The error doesn't show it."""


class ImageReader:
    """Reads the images of one table.

    Args:
        table: it.
        masks: what is done to values before they are given out.
    """

    def __init__(self, table: OracleTable, masks: Masks) -> None:
        self.id = {"database": table.id.database, "schema": table.id.schema, "name": table.id.name}
        self.full_path = table.id.full_path
        self.fingerprint = table.schema.fingerprint
        self._path = table.id.path
        self._columns = [
            (column.name, native, _plain_reader(native), native.large, native.family == "XMLTYPE")
            for column, native in zip(table.schema.columns, table.natives, strict=True)
        ]
        self._key = table.schema.key
        names = [column.name for column in table.schema.columns]
        changes = masks.of_table(table.schema, table.natives).changes
        self._masks = {names[place]: _single(change, length) for place, change, length in changes}

    def images(self, event: Event) -> RowImages:
        """Before, after, key and what changed.

        Raises:
            UnreadableValue: a value is not of its column's form.
        CaptureError: the row's key is not in the statement.
        """
        row = event.row
        assert row is not None
        before = self._image(event, row.before, row.shape.before_calls, large=False)
        after = self._image(event, row.after, row.shape.after_calls, large=True)
        both = RowImages(before, after)
        if event.op is Operation.UPDATE:
            names = {column[0] for column in self._columns}
            changed = [n for n in (*row.shape.changed, *event.values, *event.lost) if n in names]
            both.changed = list(dict.fromkeys(changed))
        if self._key:
            image = dict((after if after is not None else before) or [])
            missing = next((name for name in self._key if name not in image), None)
            if missing is not None:
                raise CaptureError(
                    f"A change of table {self._path} lacks the key column '{missing}' (SCN {event.scn}).",
                    remedy=f"Run ALTER TABLE {self._path} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS, and take a new "
                    "snapshot.",
                )
            values = [image[name] for name in self._key]
            both.key = list(zip(self._key, values, strict=True))
            both.key_text = key_text(values)
        return both

    def changes(self, event: Event) -> bool:
        """Whether an update changes a captured column, or may do so."""
        row = event.row
        assert row is not None
        before, after = row.before or {}, row.after or {}
        for name, *_ in self._columns:
            if name in event.values or name in event.lost:
                return True
            if name in row.shape.changed and (name not in before or before[name] != after.get(name)):
                return True
        return False

    def keys(self, event: Event) -> tuple[Key, Key] | None:
        """The keys before and after an update as they are printed; None when it does not change the key."""
        row = event.row
        if row is None or row.before is None or row.after is None or not any(n in row.shape.changed for n in self._key):
            return None
        before, after = (tuple(image.get(name) for name in self._key) for image in (row.before, row.after))
        return None if before == after or not all(name in row.before for name in self._key) else (before, after)

    def key_changes(self, images: RowImages) -> bool:
        """Whether an update gives the row another key."""
        before, after = dict(images.before or []), dict(images.after or [])
        return any(name in before and before[name] != after.get(name) for name in self._key)

    def _image(
        self, event: Event, texts: Mapping[str, str | None] | None, calls: frozenset[str], *, large: bool
    ) -> RowImage | None:
        if texts is None:
            return None
        row = event.row
        unsupported = row.shape.unsupported if row is not None else frozenset()
        image: RowImage = []
        for name, native, plain, is_large, is_document in self._columns:
            if large and name in event.values:
                image.append((name, _large(event.values[name])))
                continue
            if name not in texts or name in unsupported or (large and name in event.lost):
                continue
            text = texts[name]
            if is_large and not large and event.op is not Operation.CREATE:
                # What is printed of a large value before a change is never the value.
                continue
            if is_document and text is None and event.op is Operation.UPDATE:
                image.append((name, None))
                continue
            try:
                image.append((name, native.from_redo(text, True) if name in calls else plain(text)))
            except ValueError as error:
                raise UnreadableValue(
                    f"The value of column '{name}' of table {self._path} can't be read: {error} (SCN {event.scn}).",
                    remedy="Leave the table out, or set 'unreadable_changes' to warn, and report it with the column's "
                    "type.",
                ) from None
        if not self._masks:
            return image
        return [(name, self._masks[name](text) if name in self._masks else text) for name, text in image]


def _single(change: Change, length: int | None) -> Callable[[str | None], str | None]:
    """A mask for one value at a time."""

    @lru_cache(maxsize=4096)
    def masked(text: str | None) -> str | None:
        masked_text: str | None = change(pa.array([text], pa.string()), length)[0].as_py()
        return masked_text

    return masked


def _large(value: str | bytes | None) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@lru_cache(maxsize=1024)
def _plain_reader(native: NativeType) -> Callable[[str | None], str | None]:
    """Reads a literal of a type; most are their value."""
    if native.logical.kind in ("string", "xml"):
        return lambda text: text or None
    decode = native.decoder()
    return lambda text: None if not text else decode(text)
