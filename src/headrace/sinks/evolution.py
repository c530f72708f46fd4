"""What becomes of a target whose columns are not those of the source any more.

| the source's structure has | `add` | `exception` | `evolve` | `try_evolve` | `lenient` | `ignore` |
|---|---|---|---|---|---|---|
| a new column | added | stop | added | added | added | left out |
| a column less | stop | stop | dropped | dropped, else kept | kept | kept |
| a column under another name | stop | stop | stop | a new one, the old one kept | same | a column less |
| a wider type, which the target's column can become | widened | stop | widened | widened | widened | kept |
| a narrower type, which the target's column holds | cast | stop | cast | cast | cast | cast |
| another type | stop | stop | stop | kept | stop | kept |
| another key | stop | stop | stop | stop | stop | stop |

Kept columns keep the values that they have and get no new ones. Where a column's type is kept, values that do not fit
it become null; only `try_evolve` and `ignore` do that. A source's structure says no renaming: a column gone and another
come at once may be either, and `evolve` does not guess. Every stop is before the first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.errors import SchemaError

BEHAVIORS = ("add", "evolve", "try_evolve", "lenient", "ignore", "exception")
_INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_BY_HAND = "Change the target's column yourself, or move the target away and take a new snapshot."


@dataclass(frozen=True)
class TargetColumn:
    """A column of a target; its type as Spark SQL spells it."""

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
    """

    add: tuple[TargetColumn, ...] = ()
    widen: tuple[TargetColumn, ...] = ()
    drop: tuple[str, ...] = ()
    left_out: frozenset[str] = frozenset()
    casts: Mapping[str, str] | None = None


def changes_told(found: Evolution) -> tuple[str, ...]:
    """What would be done to a target's structure, for people."""
    return (
        *(f"adds column '{column.name}' ({column.type})" for column in found.add),
        *(f"widens column '{column.name}' to {column.type}" for column in found.widen),
        *(f"drops column '{name}'" for name in found.drop),
        *(f"leaves column '{name}' out" for name in sorted(found.left_out)),
        *(f"writes column '{name}' as {kind}" for name, kind in sorted((found.casts or {}).items())),
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
    own: frozenset[str],
    behavior: str,
    widens: Callable[[str, str], bool],
    source: str,
    target: str,
    holds: Callable[[str, str], bool] = holds_spark,
    folded: Callable[[str], str] = str.lower,
    can_cast: bool = True,
) -> Evolution:
    """Compare a target's columns with those that the source has now.

    Args:
        have: the target's columns and types.
        wanted: the columns that the source has now, and ours.
        key: names of the key columns.
        own: names of ours.
        behavior: one of `BEHAVIORS`.
        widens: whether the target can make a column of one type one of another.
        source: the source's name, for messages.
        target: the target's, for messages (`the Delta table /lake/t`).
        holds: whether every value of the second type is one of the first.
        folded: names that are equal after this are one.
        can_cast: whether values can be written as another type that does not hold all of them.

    Raises:
        SchemaError: this behaviour does not allow the difference, or the target can't follow it.
    """
    left = {folded(name): name for name in have}
    add, widen, left_out, casts = [], [], set(), {}
    for column in wanted:
        found = left.pop(folded(column.name), None)
        kind = column.type
        if found is None:
            if column.name in own:
                add.append(column)
            elif behavior == "exception":
                raise SchemaError(
                    f"Table {source} has a column '{column.name}' now, which {target} has not.", remedy=_BY_HAND
                )
            elif behavior == "ignore":
                left_out.add(column.name)
            else:
                add.append(column)
        elif have[found] == kind or (behavior != "exception" and holds(have[found], kind)):
            continue
        elif behavior not in ("exception", "ignore") and widens(have[found], kind):
            widen.append(column)
        elif can_cast and behavior in ("try_evolve", "ignore") and column.name not in key:
            casts[column.name] = have[found]
        else:
            raise SchemaError(
                f"Column '{column.name}' of table {source} is {column.type} now, but {have[found]} in {target}.",
                remedy=_BY_HAND,
            )
    drop = _gone(left, [c.name for c in add if c.name not in own], key, behavior, source, target)
    return Evolution(tuple(add), tuple(widen), drop, frozenset(left_out), casts or None)


def _gone(
    left: Mapping[str, str], added: list[str], key: tuple[str, ...], behavior: str, source: str, target: str
) -> tuple[str, ...]:
    """Columns of the target to drop, among those that the source has no more."""
    if not left or behavior in ("lenient", "ignore"):
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
            f"for {target} nobody can know whether that is another name for the same values.",
            remedy="Rename or drop the target's column yourself, or set 'schema_change_behavior' to lenient, which "
            "keeps the old column beside the new one.",
        )
    return tuple(left.values())
