"""The plain Python model of a history: what versions a table has after change rows, in whatever order they came."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace.changes import TableSchema

Version = tuple[tuple[str | None, ...], str, str | None]
"""The row, the position at which it became so, and the one at which it was no more; None for now."""


def versions(lines: Iterable[Mapping[str, Any]], schema: TableSchema, tracked: Collection[str]) -> list[Version]:
    """All versions of a table, sorted."""
    emptied = {line["position"] for line in lines if line["op"] == "t"}
    events: dict[Any, dict[str, tuple[bool, Mapping[str, str | None]]]] = {}

    def tell(key: Any, at: str, gone: bool, said: Mapping[str, str | None]) -> None:
        known = events.setdefault(key, {})
        if gone or at not in known:
            known[at] = (gone, said)

    for line in lines:
        op, at, before, after = line["op"], line["position"], line.get("before"), line.get("after")
        old = tuple((before or after or {}).get(name) for name in schema.key)
        if op == "d":
            tell(old, at, True, {})
        elif op in ("r", "c", "u"):
            new = tuple(after.get(name) for name in schema.key)
            if op == "u" and before and old != new:
                tell(old, at, True, {})
                after = {**before, **after}
            tell(new, at, False, after)
    found: list[Version] = []
    for key, known in events.items():
        for at in emptied:
            known[at] = (True, {})
        found += _of_key(dict(zip(schema.key, key, strict=True)), known, schema, tracked)
    return sorted(found, key=repr)


def _of_key(
    key: Mapping[str, str | None],
    known: Mapping[str, tuple[bool, Mapping[str, str | None]]],
    schema: TableSchema,
    tracked: Collection[str],
) -> list[Version]:
    names = [column.name for column in schema.columns]
    out: list[list[Any]] = []
    row: dict[str, str | None] | None = None
    for at, (gone, said) in sorted(known.items()):
        if gone:
            if row is not None:
                out[-1][2] = at
            row = None
            continue
        newer = {**(row or dict.fromkeys(names)), **said, **key}
        if row is not None and all(row[name] == newer[name] for name in tracked):
            out[-1][0] = newer
        else:
            if row is not None:
                out[-1][2] = at
            out.append([newer, at, None])
        row = newer
    return [(tuple(row[name] for name in names), start, end) for row, start, end in out]
