"""The tables that a run parked because they can't be read or written, as the checkpoint keeps them.

A parked table's changes are left out of every sink from its batch on. The other tables go on.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.changes import TableId
from headrace.observe.checkpoint import PARKED, CheckpointFolder, reading
from headrace.versions import require_readable

_VERSION = 1


@dataclass(frozen=True)
class ParkedTable:
    """A table whose changes are left out.

    Args:
        table: the source's table.
        batch: the first batch that lacks them.
        at: when it was parked.
        sentence: why.
        remedy: what has to be done before it is read again; may be empty.
        command: what reads it again, after which it goes on.
    """

    table: TableId
    batch: int
    at: dt.datetime
    sentence: str
    remedy: str
    command: str

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names."""
        return {
            "database": self.table.database,
            "schema": self.table.schema,
            "name": self.table.name,
            "batch": self.batch,
            "at": self.at.isoformat(),
            "sentence": self.sentence,
            "remedy": self.remedy,
            "command": self.command,
        }

    @property
    def why(self) -> str:
        """Cause and remedy, as sentences."""
        return f"{self.sentence} {self.remedy}".strip()

    @property
    def text(self) -> str:
        return f"{self.why} Then read the table again: {self.command}"


def parked_tables(folder: CheckpointFolder) -> tuple[ParkedTable, ...]:
    """The tables that are parked.

    Raises:
        OptionError: the record can't be read.
        NewerRelease: a later release wrote it.
    """
    return parked_of_text(folder.text(PARKED))


def parked_of_text(text: str | None) -> tuple[ParkedTable, ...]:
    """Back from `parked_text`; none where there is no text.

    Raises:
        OptionError: the text can't be read.
        NewerRelease: a later release wrote it.
    """
    if text is None:
        return ()
    with reading(PARKED, without="Delete it only if you read all tables again afterwards."):
        data = json.loads(text)
        require_readable(
            data["version"], _VERSION, what=f"The checkpoint's '{PARKED}'", remedy="Go on with that release."
        )
        return tuple(
            ParkedTable(
                TableId(one["database"], one["schema"], one["name"]),
                int(one["batch"]),
                dt.datetime.fromisoformat(one["at"]),
                one["sentence"],
                one["remedy"],
                one["command"],
            )
            for one in data["parked"]
        )


def parked_text(tables: Iterable[ParkedTable]) -> str:
    return json.dumps({"version": _VERSION, "parked": [table.to_json() for table in tables]}, ensure_ascii=False)


def of_database(parked: Iterable[ParkedTable], database: str, *, several: bool) -> dict[str, ParkedTable]:
    """The parked tables of a database by path, as its offset names them.

    Args:
        parked: all of the pipeline.
        database: its name.
        several: whether the pipeline captures others too.
    """
    return {one.table.path: one for one in parked if not several or one.table.database == database}
