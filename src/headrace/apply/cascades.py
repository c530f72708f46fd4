"""What foreign keys make of a transaction's changes: the rows that the database deleted or changed by itself.

Pure: rows are images of canonical texts, and everything happens in the order of positions, as it did in the database.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from headrace.changes.foreign_key import ForeignKey
from headrace.changes.row import Operation
from headrace.changes.table import TableId

Image = Mapping[str, str | None]
RowKey = tuple[str | None, ...]
_MARK = "k"


class Change(NamedTuple):
    """A change of a row that the log has.

    Args:
        position: where it stands.
        table, op, before, after: as of a change row; an image may lack columns.
        checked: whether foreign keys were in force.
    """

    position: str
    table: TableId
    op: str
    before: Image | None = None
    after: Image | None = None
    checked: bool = True


class Added(NamedTuple):
    """A change of a row that the log does not have.

    Args:
        number: from 1, among those that follow from one change.
        cause: the change of the log that it follows from.
        key: the foreign key by which it does.
        table, op, before, after: as of a change row.
    """

    number: int
    cause: Change
    key: ForeignKey
    table: TableId
    op: str
    before: Image
    after: Image | None

    @property
    def position(self) -> str:
        """Directly after its cause, in front of what comes next in the log."""
        return position_after(self.cause.position, self.number)


class Known(Protocol):
    """What can be asked for of the tables that foreign keys name."""

    def rows(self, key: ForeignKey, to: Collection[str]) -> Iterable[Image]:
        """The rows of `key.child` before the first change that refer to any of these (`ForeignKey.of_child`)."""

    def changes(self, key: ForeignKey, to: Collection[str], rows: Collection[RowKey]) -> Iterable[Change]:
        """The changes of rows of `key.child` that are among these, or refer to any of these before or after."""


def added_changes(
    keys: Sequence[ForeignKey],
    row_keys: Mapping[TableId, Sequence[str]],
    causes: Iterable[Change],
    known: Known,
    unchanged: Collection[tuple[ForeignKey, RowKey]] = (),
) -> list[Added]:
    """The changes that foreign keys add to those of the log; no more is read than the rows that they concern.

    Args:
        keys, row_keys, unchanged: see `follow`.
        causes: the deletes and updates of the log, of all tables that foreign keys refer to.
        known: gives rows and other changes.
    """
    changes = {change.position: change for change in causes}
    rows: dict[TableId, dict[RowKey, Image]] = {table: {} for table in row_keys}
    asked: dict[ForeignKey, set[str]] = {key: set() for key in keys}
    added: list[Added] = []
    changed = [(one.table, one.before, _left(one)) for one in changes.values() if one.checked]
    while True:
        wanted: dict[ForeignKey, set[str]] = defaultdict(set)
        for key in keys:
            for table, old, new in changed:
                to = key.of_parent(old) if key.parent == table else None
                if to is not None and to not in asked[key] and _acts(key, old or {}, new):
                    wanted[key].add(to)
        if not wanted:
            return added
        for key, every in wanted.items():
            asked[key] |= every
            _learn(key, every, row_keys[key.child], rows[key.child], changes, known)
        images = {table: of_table.values() for table, of_table in rows.items()}
        added = list(follow(keys, row_keys, images, changes.values(), unchanged))
        changed = [(one.table, one.before, one.after) for one in added]


def _left(change: Change) -> Image | None:
    """What an update leaves of a row; None of a delete."""
    return None if change.op == Operation.DELETE else {**(change.before or {}), **(change.after or {})}


def _learn(
    key: ForeignKey,
    to: Collection[str],
    columns: Sequence[str],
    rows: dict[RowKey, Image],
    changes: dict[str, Change],
    known: Known,
) -> None:
    """Ask for the rows that refer to some, and for all changes of these and of others that do so for a time."""
    there = {at: image for image in known.rows(key, to) if (at := row_key(columns, image)) is not None}
    rows.update(there)
    held, new = set[RowKey](), set(there)
    while True:
        more = list(known.changes(key, to, held | new))
        changes.update((change.position, change) for change in more)
        held |= new
        images = [image for change in more for image in (change.before, change.after)]
        new = {at for image in images if (at := row_key(columns, image)) is not None} - held
        if not new:
            return


def row_key(columns: Sequence[str], image: Image | None) -> RowKey | None:
    """The key of a row; None where the image does not have all of it."""
    if image is None or any(name not in image for name in columns):
        return None
    return tuple(image[name] for name in columns)


def position_after(position: str, number: int) -> str:
    """A position between one of the log and the next."""
    return f"{position}{_MARK}{number:08d}"


@dataclass
class _Rows:
    """The rows of a table, and which of them refer to what.

    Args:
        key: the columns of its key.
        keys: the foreign keys that it has.
    """

    key: Sequence[str]
    keys: Sequence[ForeignKey]
    images: dict[RowKey, Image] = field(default_factory=dict)
    refer: dict[ForeignKey, dict[str, dict[RowKey, None]]] = field(default_factory=lambda: defaultdict(dict))

    def row_key(self, *images: Image | None) -> RowKey | None:
        """The key of the first image that has all of it."""
        return next((at for image in images if (at := row_key(self.key, image)) is not None), None)

    def put(self, at: RowKey, image: Image) -> None:
        self.take(at)
        self.images[at] = image
        for key in self.keys:
            to = key.of_child(image)
            if to is not None:
                self.refer[key].setdefault(to, {})[at] = None

    def take(self, at: RowKey) -> Image | None:
        image = self.images.pop(at, None)
        if image is not None:
            for key in self.keys:
                to = key.of_child(image)
                if to is not None:
                    del self.refer[key][to][at]
        return image

    def clear(self) -> None:
        self.images.clear()
        self.refer.clear()

    def that_refer(self, key: ForeignKey, to: str) -> list[RowKey]:
        """The keys of rows, in an order that depends on nothing else."""
        return sorted(self.refer[key].get(to, {}), key=lambda at: [text or "" for text in at])


def follow(
    keys: Sequence[ForeignKey],
    row_keys: Mapping[TableId, Sequence[str]],
    rows: Mapping[TableId, Iterable[Image]],
    changes: Iterable[Change],
    unchanged: Collection[tuple[ForeignKey, RowKey]] = (),
) -> Iterator[Added]:
    """The changes that foreign keys add to those of the log, in the order of their positions.

    Args:
        keys: the foreign keys, in the order in which the database goes through them.
        row_keys: the columns of the key of each table that has one of them.
        rows: rows of these tables before the first change: at least those that a change of another row concerns.
        changes: those of the log, of all tables that foreign keys name, in any order.
        unchanged: rows that a foreign key is known not to have changed.
    """
    tables = {table: _Rows(columns, [key for key in keys if key.child == table]) for table, columns in row_keys.items()}
    for table, images in rows.items():
        for image in images:
            at = tables[table].row_key(image)
            if at is not None:
                tables[table].put(at, image)
    of_parent: dict[TableId, list[ForeignKey]] = defaultdict(list)
    for key in keys:
        of_parent[key.parent].append(key)
    for change in sorted(changes, key=lambda one: one.position):
        old, new = _applied(change, tables.get(change.table))
        if change.checked and old is not None:
            yield from _followed(change, old, new, tables, of_parent, unchanged)


def _applied(change: Change, rows: _Rows | None) -> tuple[Image | None, Image | None]:
    """The row as it was before a change and as it is after it, as far as they are known."""
    old, new = change.before, change.after
    if change.op == Operation.TRUNCATE:
        if rows is not None:
            rows.clear()
        return None, None
    if rows is not None:
        at = rows.row_key(old, new)
        known = None if at is None or old is None else rows.take(at)
        old = {**known, **(old or {})} if known is not None else old
    if change.op == Operation.DELETE:
        return old, None
    new = {**(old or {}), **(new or {})}
    if rows is not None:
        at = rows.row_key(new)
        if at is not None:
            rows.put(at, new)
    return old if change.op == Operation.UPDATE else None, new


class _Pending(NamedTuple):
    """A row that was deleted or changed, and what is still to follow from it.

    Args:
        table, old, new: it; no new image where it was deleted.
        updated: the tables that were updated on the way to it, its own included.
    """

    table: TableId
    old: Image
    new: Image | None
    updated: tuple[TableId, ...]


def _followed(
    change: Change,
    old: Image,
    new: Image | None,
    tables: Mapping[TableId, _Rows],
    of_parent: Mapping[TableId, Sequence[ForeignKey]],
    unchanged: Collection[tuple[ForeignKey, RowKey]],
) -> Iterator[Added]:
    number = 0
    # A stack and no recursion, because a tree of rows may be deep.
    stack = [_reached(_Pending(change.table, old, new, () if new is None else (change.table,)), tables, of_parent)]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
            continue
        key, at, to, pending = child
        rows = tables[key.child]
        before = rows.images.get(at)
        # What followed from the row in front may have changed it already.
        if before is None or key.of_child(before) != to or (key, at) in unchanged:
            continue
        after = _after(key, before, pending.new)
        rows.take(at)
        if after is not None:
            rows.put(rows.row_key(after) or at, after)
        number += 1
        op = Operation.DELETE if after is None else Operation.UPDATE
        yield Added(number, change, key, key.child, op, before, after)
        updated = pending.updated if after is None else (*pending.updated, key.child)
        stack.append(_reached(_Pending(key.child, before, after, updated), tables, of_parent))


def _reached(
    pending: _Pending, tables: Mapping[TableId, _Rows], of_parent: Mapping[TableId, Sequence[ForeignKey]]
) -> Iterator[tuple[ForeignKey, RowKey, str, _Pending]]:
    """The rows that refer to one that was deleted or changed, where something follows for them."""
    for key in of_parent.get(pending.table, ()):
        to = key.of_parent(pending.old)
        if to is None or key.child not in tables:
            continue
        # Where updates would come back to a table that they changed, the database refuses the statement.
        if _acts(key, pending.old, pending.new) and (pending.new is None or key.child not in pending.updated):
            for at in tables[key.child].that_refer(key, to):
                yield key, at, to, pending


def _acts(key: ForeignKey, old: Image, new: Image | None) -> bool:
    """Whether something follows for the rows that refer to a row that was deleted or changed."""
    if new is None:
        return bool(key.on_delete)
    return bool(key.on_update) and any(old.get(name) != new.get(name) for name in key.referenced)


def _after(key: ForeignKey, before: Image, parent: Image | None) -> Image | None:
    """A row after its foreign key's action; None where it is deleted.

    Args:
        key: the foreign key.
        before: the row.
        parent: the row that it refers to, as it is now; None where that is deleted.
    """
    action = key.on_delete if parent is None else key.on_update
    if action == "set null":
        return {**before, **dict.fromkeys(key.columns)}
    if parent is None:
        return None
    return {**before, **{name: parent.get(other) for name, other in zip(key.columns, key.referenced, strict=True)}}
