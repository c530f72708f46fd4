"""Change rows of a feed, replayed by key: what a table holds after them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ABSENT = "(absent)"
"""Stands for a column that no message carried."""


@dataclass
class Held:
    """One row of a table.

    Args:
        values: canonical text by column.
        snapshot: whether its last image was read by the snapshot.
    """

    values: dict[str, str | None]
    snapshot: bool


@dataclass
class Table:
    """What the changes of one topic leave behind."""

    rows: dict[str, Held] = field(default_factory=dict)
    keyless: list[dict[str, str | None]] = field(default_factory=list)
    moved: dict[str, Held] = field(default_factory=dict)
    """Rows whose key changed, by their old key: the new row may leave out what did not change."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Apply a change."""
        op = row["op"]
        if op == "t":
            self.rows.clear()
            self.keyless.clear()
        elif row["key_text"] is None:
            self._take_keyless(row)
        elif op == "d":
            gone = self.rows.pop(row["key_text"], None)
            if gone is not None:
                self.moved[row["key_text"]] = gone
        else:
            old = _old_key(row)
            before = self.moved.pop(old, None) if old is not None else self.rows.get(row["key_text"])
            values = {**(before.values if before else {}), **row["after"]}
            self.rows[row["key_text"]] = Held(values, op == "r")

    def _take_keyless(self, row: Mapping[str, Any]) -> None:
        if row["op"] in ("d", "u"):
            self.keyless.remove(row["before"])
        if row["op"] != "d":
            self.keyless.append(row["after"])


def _old_key(row: Mapping[str, Any]) -> str | None:
    for header in row["message"]["headers"] or ():
        if header["key"] == "__debezium.oldkey":
            told = json.loads(header["value"])
            values = list(map(str, (told.get("payload") or told).values()))
            return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return None


def replayed(rows: Iterable[Mapping[str, Any]]) -> dict[str, Table]:
    """The tables by topic, after all change rows in the order of their positions."""
    tables: dict[str, Table] = defaultdict(Table)
    for row in sorted(rows, key=lambda row: row["position"]):
        if row["op"] in ("r", "c", "u", "d", "t"):
            tables[row["message"]["topic"]].take(row)
    return dict(tables)
