"""How the parts of a statement become a row, worked out once per shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from headrace.sources.oracle.redo.row import RedoPiece, RedoRow, RedoShape, placed

# What makes a row of a statement's parts, which it uses up. The second argument: whether literals have doubled quotes.
RowPlan = Callable[[list[Any], bool], RedoRow]
PiecePlan = Callable[[list[Any], bool], RedoPiece]
# What takes values at some positions, in C.
_Picker = Callable[[list[Any]], Sequence[Any]]
_new = tuple.__new__


class PrintedPart(NamedTuple):
    """A piece of the statement as printed: a head, the literals `first` to `last` with what is between, a tail."""

    head: str
    first: int = 0
    last: int = -1
    tail: str = ""


class Call(NamedTuple):
    """A function call, or several joined by `||`, which are printed with one blank on each side of it."""

    slices: tuple[PrintedPart, ...]

    def constant(self) -> str | None:
        if any(piece.last >= 0 for piece in self.slices):
            return None
        return " || ".join([piece.head for piece in self.slices])

    def joined(self) -> list[tuple[str, int, int, str]]:
        """Heads with their quote, literals from and before, tails with their quote; blanks and `||` are in them."""
        pieces: list[tuple[str, int, int, str]] = []
        head = ""
        for piece in self.slices:
            head += (" || " if pieces or head else "") + piece.head
            if piece.last >= 0:
                pieces.append((head + "'", piece.first, piece.last + 1, "'" + piece.tail))
                head = ""
        # Calls without literals at the end belong to the last tail.
        *most, (first_head, first, stop, tail) = pieces
        return [*most, (first_head, first, stop, tail + head)]


class Values:
    """Where the values of a statement are: its own parts, followed by values outside of literals.

    Args:
        parts: how many parts the statement has.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._extras: list[str | None] = []
        self._calls: list[tuple[int, str, int, int, str]] = []
        self._longer: list[tuple[int, str, int, int, str]] = []
        self._joins: list[tuple[int, tuple[int, ...]]] = []

    def constant(self, text: str | None) -> int:
        """The position of a text that no literal is part of, or of NULL."""
        if text is None and None in self._extras:
            return self._parts + self._extras.index(None)
        self._extras.append(text)
        return self._parts + len(self._extras) - 1

    def call(self, call: Call) -> int:
        constant = call.constant()
        if constant is not None:
            return self.constant(constant)
        index = self.constant("")
        first, *others = call.joined()
        self._calls.append((index, *first))
        self._longer += [(index, *other) for other in others]
        return index

    def joined(self, indexes: Iterable[int]) -> int:
        """The position of several literals joined by `||`."""
        index = self.constant("")
        self._joins.append((index, tuple(indexes)))
        return index

    def filler(self) -> Filler | None:
        """What adds the values to a statement's parts; None when they all are literals."""
        if not self._extras:
            return None
        return _filler(self._parts, tuple(self._extras), tuple(self._calls), tuple(self._longer), tuple(self._joins))


Filler = Callable[[list[Any], bool], None]


def _filler(
    size: int,
    extras: tuple[str | None, ...],
    calls: tuple[tuple[int, str, int, int, str], ...],
    longer: tuple[tuple[int, str, int, int, str], ...],
    joins: tuple[tuple[int, tuple[int, ...]], ...],
) -> Filler:
    def fill(parts: list[Any], doubled: bool) -> None:
        parts += extras
        for index, head, first, stop, tail in calls:
            parts[index] = head + "'".join(parts[first:stop]) + tail
        for index, head, first, stop, tail in longer:
            parts[index] += head + "'".join(parts[first:stop]) + tail
        if doubled:
            undouble(parts, size)
        for index, literals in joins:
            parts[index] = "".join([parts[literal] for literal in literals])

    return fill


def undouble(parts: list[Any], size: int) -> None:
    """Make two quotes inside a literal one; a literal's position may hold NULL."""
    parts[1:size:2] = [text and text.replace("''", "'") for text in parts[1:size:2]]


def _plain(parts: list[Any], doubled: bool) -> None:
    if doubled:
        undouble(parts, len(parts))


def picker(indexes: Sequence[int]) -> _Picker:
    """Return what takes the values at some positions, in C."""
    if not indexes:
        return itemgetter(slice(0, 0))
    step = indexes[1] - indexes[0] if len(indexes) > 1 else 1
    if step > 0 and all(after - before == step for before, after in pairwise(indexes)):
        return itemgetter(slice(indexes[0], indexes[-1] + 1, step))
    return itemgetter(*indexes)


def insert_rows(
    schema: str | None, table: str, names: tuple[str, ...], indexes: Sequence[int], values: Values, shape: RedoShape
) -> RowPlan:
    """Return what makes inserts of parts."""
    pick, fill = picker(indexes), values.filler()

    def row(parts: list[Any], doubled: bool) -> RedoRow:
        if fill is not None:
            fill(parts, doubled)
        elif doubled:
            undouble(parts, len(parts))
        # As many names as values, by construction; strict= would cost time.
        after = dict(zip(names, pick(parts)))  # noqa: B905
        return _new(RedoRow, ("insert", schema, table, None, after, shape))

    return row


def delete_rows(
    schema: str | None, table: str, names: tuple[str, ...], indexes: Sequence[int], values: Values, shape: RedoShape
) -> RowPlan:
    """Return what makes deletes of parts."""
    pick, fill = picker(indexes), values.filler()

    def row(parts: list[Any], doubled: bool) -> RedoRow:
        if fill is not None:
            fill(parts, doubled)
        elif doubled:
            undouble(parts, len(parts))
        before = dict(zip(names, pick(parts)))  # noqa: B905  # As above.
        return _new(RedoRow, ("delete", schema, table, before, None, shape))

    return row


def update_rows(
    schema: str | None,
    table: str,
    names: tuple[str, ...],
    indexes: Sequence[int],
    sets: tuple[tuple[str, int], ...],
    values: Values,
    shape: RedoShape,
) -> RowPlan:
    """Return what makes updates of parts; `sets` are the columns of SET with the positions of their values."""
    pick, fill = picker(indexes), values.filler()

    def row(parts: list[Any], doubled: bool) -> RedoRow:
        if fill is not None:
            fill(parts, doubled)
        elif doubled:
            undouble(parts, len(parts))
        before = dict(zip(names, pick(parts)))  # noqa: B905  # As above.
        after = before.copy()
        for name, index in sets:
            after[name] = parts[index]
        return _new(RedoRow, ("update", schema, table, before, after, shape))

    return row


def pieces(
    piece: RedoPiece,
    names: tuple[str, ...] | None,
    indexes: Sequence[int],
    values: Values,
    content: tuple[int, Callable[[str], dict[str, Any]]] | None = None,
) -> PiecePlan:
    """Return what makes pieces of a large value of parts.

    Args:
        piece: the piece without its values.
        names, indexes: the columns that identify the row; None when the statement has none.
        values: where the values are.
        content: the position of what is written, and what makes the piece's fields of it.
    """
    pick, fill = picker(indexes), values.filler() or _plain

    def row(parts: list[Any], doubled: bool) -> RedoPiece:
        printed = parts.copy()
        fill(parts, doubled)
        fields: dict[str, Any] = {}
        if names is not None:
            fields["after"] = dict(zip(names, pick(parts), strict=True))
        if content is not None:
            index, make = content
            with placed(printed):
                fields |= make(parts[index])
        return piece._replace(**fields)

    return row
