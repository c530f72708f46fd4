"""What an offset keeps of tables that differ from the others: how often their schema changed, and moves by command.

Back (`rewind`): changes that were delivered come again. Forward (`skip`): changes are left out, which loses them on
purpose; the offset keeps what was left out until the table is read again.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from headrace.changes import Operation, TableSchema
from headrace.sources.rows import with_fact

FACT = "tableVersion"
"""The name of a version in `source`."""
Versions = Mapping[str, tuple[int, str]]
"""The version of a table's newest schema, and that schema's fingerprint, by the table (`schema.name`).

A table that is not among them is captured, and has its first one.
"""

Kind = Literal["rewind", "skip"]
NOW = "now"
"""What users write for the newest commit of the source."""


def next_versions(versions: Versions, start: Iterable[TableSchema], end: Iterable[TableSchema]) -> Versions:
    """The versions at the end of a batch.

    Args:
        versions: those at its start.
        start: the schemas there; those of a table oldest first.
        end: the schemas at the end, in the same way.
    """
    before, after, next_numbers = _by_table(start), _by_table(end), dict(versions)
    for table, schemas in after.items():
        if table not in next_numbers and table not in before:
            continue
        version, last = next_numbers.get(table) or (1, before[table][-1])
        later = _new_schemas(before.get(table, [last]), schemas)
        if later:
            next_numbers[table] = (version + len(later), schemas[-1])
    gone = {table: (1, schemas[-1]) for table, schemas in before.items() if table not in after}
    return {**gone, **next_numbers}


def versions_of(versions: Versions, schemas: Iterable[TableSchema]) -> dict[str, int]:
    """The versions of schemas by their fingerprints, without first ones.

    Args:
        versions: at the end of a batch.
        schemas: those that its rows may follow; those of a table oldest first.
    """
    numbers: dict[str, int] = {}
    for table, fingerprints in _by_table(schemas).items():
        newest, _ = versions.get(table, (1, ""))
        for back, fingerprint in enumerate(reversed(fingerprints)):
            if newest - back > 1:
                numbers.setdefault(fingerprint, newest - back)
    return numbers


def with_versions(batches: Iterable[pa.RecordBatch], versions: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
    """Change rows whose `schema` rows say their versions.

    Args:
        batches: the rows.
        versions: by the schemas' fingerprints.
    """
    for batch in batches:
        if not pc.any(pc.equal(batch.column("op"), Operation.SCHEMA.value)).as_py():
            yield batch
            continue
        is_schema = pc.equal(batch.column("op"), Operation.SCHEMA.value)
        texts = pa.array([str(version) for version in versions.values()], pa.string())
        index = pc.index_in(batch.column("schema_id"), pa.array(list(versions), pa.string()))
        yield with_fact(batch, FACT, pc.if_else(is_schema, texts.take(index), None))


def _new_schemas(known: list[str], schemas: list[str]) -> list[str]:
    """Schemas without those at their beginning that were known last."""
    held = next((n for n in range(len(known), 0, -1) if known[-n:] == schemas[:n]), 0)
    return schemas[held:]


def _by_table(schemas: Iterable[TableSchema]) -> dict[str, list[str]]:
    """The fingerprints of each table's schemas; one that only repeats the one before does not count."""
    by_table: dict[str, list[str]] = {}
    for schema in schemas:
        fingerprints = by_table.setdefault(schema.id.path, [])
        if fingerprints[-1:] != [schema.fingerprint]:
            fingerprints.append(schema.fingerprint)
    return by_table


@dataclass(frozen=True)
class TableMove:
    """What a user wants of a table.

    Args:
        table: `schema.name`.
        kind: back or forward.
        to: the commit after which the changes of the table go on, in the form of `Offset.commit`. Of a user's command
            also as the source's tools write it, a time (ISO 8601), or `now`.
    """

    table: str
    kind: Kind
    to: str


@dataclass(frozen=True)
class MovePlan:
    """What a move would do.

    Args:
        move: the move, with a commit in the form of `Offset.commit`.
        at: the commit up to which the changes of the table are delivered.
        changes: about how many changes come again, or are left out; None where the source can't say cheaply.
        time: when the commit `move.to` was made; None where that is not known.
    """

    move: TableMove
    at: str
    changes: int | None = None
    time: dt.datetime | None = None


def time_of_text(text: str) -> dt.datetime | None:
    """The instant that a text says in ISO 8601, with a zone; None for any other text.

    A time without a zone is none: which zone it is in would be a guess.
    """
    try:
        time = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
