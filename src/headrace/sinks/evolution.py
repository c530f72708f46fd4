"""What to do with a target whose columns differ from the source's.

| the source's structure has | `add` | `exception` | `evolve` | `try_evolve` | `lenient` | `ignore` |
|---|---|---|---|---|---|---|
| a new column | added | stop | added | added | added | left out |
| a column less | stop | stop | dropped | dropped, else kept | kept | kept |
| a column known to have a new name | stop | stop | renamed | renamed | a new one, the old one kept | a column less |
| a column less and a new one | stop | stop | stop | a new one, the old one kept | same | a column less |
| a wider type, which the target's column can become | widened | stop | widened | widened | widened | kept |
| a narrower type, which the target's column holds | cast | stop | cast | cast | cast | cast |
| another type | stop | stop | stop | kept | stop | kept |
| another key | stop | stop | stop | stop | stop | stop |

Kept columns keep the values that they have and get no new ones. Where a column's type is kept, which only `try_evolve`
and `ignore` do, a value that is none of that type is one without a place (`unrepresentable`). A source's structure says
no renaming: a column gone and another come at once may be either, and `evolve` does not guess. What statements say of
names is known (`apply.column_names`).
Every stop is before the first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.apply.column_names import Step, names_now, renames_in_order
from headrace.errors import SchemaError

BEHAVIORS = ("add", "evolve", "try_evolve", "lenient", "ignore", "exception")
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
RENAMING = ("evolve", "try_evolve")
"""The behaviours that rename columns."""
KEEPING = ("lenient", "ignore")
"""The behaviours to which it is all one whether a column has a new name or is another."""
_BY_HAND = "Change the target's column yourself, or move the target away and take a new snapshot."


@dataclass(frozen=True)
class TargetColumn:
    """A column of a target; its type as Spark SQL writes it."""

    name: str
    type: str
    comment: str | None = None
    nullable: bool = True


@dataclass(frozen=True)
class Evolution:
    """What to do about columns that differ.

    Args:
        add: columns to add.
        widen: columns to give a wider type.
        drop: columns of the target to drop.
        left_out: columns of the source that are not written.
        casts: columns that are written as the target's type, which may not hold every value.
        rename: columns of the target and their new names, in an order in which no name is taken; after the drops and
            before anything else.
    """

    add: tuple[TargetColumn, ...] = ()
    widen: tuple[TargetColumn, ...] = ()
    drop: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()
    casts: Mapping[str, str] | None = None
    rename: tuple[tuple[str, str], ...] = ()

    def columns_after(self, columns: Mapping[str, str]) -> dict[str, str]:
        names = dict(self.rename)
        kept = {names.get(name, name): kind for name, kind in columns.items() if name not in self.drop}
        return kept | {column.name: column.type for column in (*self.widen, *self.add)}


def changes_told(change: Evolution) -> tuple[str, ...]:
    """What would be done to a target's structure, for people."""
    return (
        *(f"renames column '{old}' to '{new}'" for old, new in change.rename),
        *(f"adds column '{column.name}' ({column.type})" for column in change.add),
        *(f"widens column '{column.name}' to {column.type}" for column in change.widen),
        *(f"drops column '{name}'" for name in change.drop),
        *(f"leaves column '{name}' out" for name in sorted(change.left_out)),
        *(f"writes column '{name}' as {kind}" for name, kind in sorted((change.casts or {}).items())),
    )


def holds_spark(wide: str, narrow: str) -> bool:
    """Whether every value of one Spark type is one of the other, exactly."""
    if wide == narrow:
        return True
    if narrow in _INTEGERS:
        if wide in _INTEGERS:
            return _INTEGERS[wide] >= _INTEGERS[narrow]
        to = _DECIMAL.fullmatch(wide)
        return to is not None and int(to[1]) - int(to[2]) >= _INTEGERS[narrow]
    a, b = _DECIMAL.fullmatch(wide), _DECIMAL.fullmatch(narrow)
    if a and b:
        return int(a[2]) >= int(b[2]) and int(a[1]) - int(a[2]) >= int(b[1]) - int(b[2])
    return (wide, narrow) == ("double", "float")


def evolution(
    have: Mapping[str, str],
    wanted: tuple[TargetColumn, ...],
    *,
    key: tuple[str, ...],
    own_columns: frozenset[str],
    behavior: str,
    widens: Callable[[str, str], bool],
    source: str,
    target: str,
    holds: Callable[[str, str], bool] = holds_spark,
    folded: Callable[[str], str] = str.lower,
    can_cast: bool = True,
    steps: tuple[Step, ...] = (),
) -> Evolution:
    """Compare a target's columns with those that the source has now.

    Args:
        have: the target's columns and types.
        wanted: the columns that the source has now, and ours.
        key: names of the key columns.
        own_columns: names of Headrace's own columns.
        behavior: one of `BEHAVIORS`.
        widens: whether the target can make a column of one type one of another.
        source: the source's name, for messages.
        target: the target's, for messages (`the Delta table /lake/t`).
        holds: whether every value of the second type is one of the first.
        folded: names that are equal after this are one.
        can_cast: whether values can be written as another type that does not hold all of them.
        steps: what is known to have happened to names.

    Raises:
        SchemaError: this behaviour does not allow the difference, or the target can't follow it.
    """
    names = [column.name for column in wanted if column.name not in own_columns]
    steps = () if behavior in KEEPING else steps
    known_now = known_names(have, names, own_columns=own_columns, steps=steps, source=source, folded=folded)
    rename = tuple(renames_in_order({old: new for old, new in known_now.items() if new is not None}))
    if rename and behavior in ("add", "exception"):
        raise SchemaError(
            f"Column '{rename[0][0]}' of table {source} is named '{rename[0][1]}' now, but {target} has the old name.",
            remedy="Set 'schema_change_behavior' to evolve, which renames it, or rename the target's column yourself.",
        )
    if behavior in RENAMING:
        new_names = dict(rename)
        gone = tuple(name for name, new in known_now.items() if new is None)
        have = {new_names.get(name, name): kind for name, kind in have.items() if name not in gone}
    else:
        rename, gone = (), ()
    left = {folded(name): name for name in have}
    add, widen, left_out, casts = [], [], set(), {}
    for column in wanted:
        target_column = left.pop(folded(column.name), None)
        kind = column.type
        if target_column is None:
            if column.name in own_columns:
                add.append(column)
            elif behavior == "exception":
                raise SchemaError(
                    f"Table {source} has a column '{column.name}' now, and {target} does not.", remedy=_BY_HAND
                )
            elif behavior == "ignore":
                left_out.add(column.name)
            else:
                add.append(column)
        elif have[target_column] == kind or (behavior != "exception" and holds(have[target_column], kind)):
            continue
        elif behavior not in ("exception", "ignore") and widens(have[target_column], kind):
            widen.append(column)
        elif can_cast and behavior in ("try_evolve", "ignore") and column.name not in key:
            casts[column.name] = have[target_column]
        else:
            raise SchemaError(
                f"Column '{column.name}' of table {source} is {column.type} now, but {have[target_column]} "
                f"in {target}.",
                remedy="Change the target's column yourself; or move the target away and read the table again: "
                f"headrace repair reread <pipeline> {source}.",
            )
    both = [(left[folded(s.name)], s.to) for s in steps if s.kind == "rename" and folded(s.name) in left]
    if both and behavior == "evolve":
        raise SchemaError(
            f"Column '{both[0][0]}' of table {source} is named '{both[0][1]}' now, but {target} has columns of "
            "both names, or lacks the new one.",
            remedy="Rename or drop the target's columns yourself, or set 'schema_change_behavior' to lenient, which "
            "keeps the old column.",
        )
    if behavior == "try_evolve":
        left = {name: kept for name, kept in left.items() if kept not in dict(both)}
    added = {folded(column.name) for column in add} - {folded(s.name) for s in steps if s.kind == "add"}
    unknown = [column.name for column in add if column.name not in own_columns and folded(column.name) in added]
    drop = gone + _gone(left, unknown, behavior, source, target)
    return Evolution(tuple(add), tuple(widen), drop, frozenset(left_out), casts or None, rename)


def known_names(
    have: Mapping[str, str],
    final: list[str] | None,
    *,
    own_columns: frozenset[str],
    steps: tuple[Step, ...],
    source: str,
    folded: Callable[[str], str] = str.lower,
) -> dict[str, str | None]:
    """What columns of a target are called now, and null for those that went away; without those that stay as they are.

    Args:
        have: the target's columns.
        final: those that the source has now; None where they are not known.
        own_columns: names of Headrace's own columns.
        steps: what is known to have happened to names.
        source: the source's name, for messages.
        folded: names that are equal after this are one.

    Raises:
        SchemaError: what was done already can't be found out.
    """
    ours = {folded(name) for name in own_columns}
    known_now = names_now([name for name in have if folded(name) not in ours], steps, final, of=source)
    here = {folded(name) for name in final or ()}
    return {
        name: new
        for name, new in known_now.items()
        # One that was dropped and came again, perhaps as another name's, is dropped only for that other.
        if (new is not None and folded(new) != folded(name))
        or (
            new is None
            and (folded(name) not in here or any(n and folded(n) == folded(name) for n in known_now.values()))
        )
    }


def key_before(key: tuple[str, ...], names: Mapping[str, str | None]) -> tuple[str, ...]:
    """What the columns of a key were called before they were renamed."""
    old = {new: name for name, new in names.items() if new is not None}
    return tuple(old.get(name, name) for name in key)


def _gone(left: Mapping[str, str], added: list[str], behavior: str, source: str, target: str) -> tuple[str, ...]:
    """Columns of the target to drop, among those that the source has no more."""
    if not left or behavior in KEEPING:
        return ()
    names = ", ".join(f"'{name}'" for name in left.values())
    if behavior in ("add", "exception"):
        raise SchemaError(
            f"Table {source} has no column {names} any more, but {target} has.",
            remedy="Drop or rename the target's column yourself, set the sink's option 'schema_change_behavior', or "
            "move the target away and take a new snapshot.",
        )
    if added:
        if behavior == "try_evolve":
            return ()
        raise SchemaError(
            f"Table {source} has no column {names} any more and has {', '.join(repr(n) for n in added)} now; "
            f"for {target} Headrace can't know whether that is a new name for the same values.",
            remedy="Say it in the sink's option 'dropped_columns', or in 'renamed_columns'; or set "
            "'schema_change_behavior' to lenient, which keeps both columns.",
        )
    return tuple(left.values())
