"""Messages that Debezium itself wrote, of every type that MariaDB and PostgreSQL have, decoded and replayed by key.

What comes out must be what the tables held, at the end of the snapshot and at the end, type by type; the only way out
is the closed list of what the producer itself loses (tests/real/losses.py). The READMEs of golden/real_debezium and
golden/real_producers say how the messages were recorded.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from codec_rows import events_of
from tests.real.comparison import Comparison, compared
from tests.real.losses import MARIADB, POSTGRES, UNTOLD, Loss
from tests.real.recording import message_lines, raw_bytes, read_natives, read_records, read_truth
from tests.real.replay import Held
from tests.real.told_tables import told_tables
from tests.real.wire_types import logical

GOLDEN = Path(__file__).parents[1] / "golden"
FULL, SHORT = "real_debezium", "real_producers"
"""Every type and every accident; and what `make test-real` does."""


@dataclass(frozen=True)
class Recording:
    """One form of what Debezium wrote of one database.

    Args:
        folder: in tests/golden.
        name: of the form's file.
        form: `schema` (JSON with schema), `plain` (JSON without) or `avro`.
    """

    folder: str
    name: str
    form: str

    @property
    def database(self) -> str:
        """`mariadb` or `postgres`."""
        return self.name.partition("_")[0]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The Kafka records."""
        return read_records(GOLDEN / self.folder / f"{self.name}.jsonl.gz")

    def truth(self, moment: str) -> Path:
        """The folder of what the tables held."""
        return GOLDEN / self.folder / f"{self.database}_truth_{moment}"

    def __str__(self) -> str:
        return f"{self.folder}/{self.name}"


RECORDINGS = (
    Recording(FULL, "mariadb_a", "schema"),
    Recording(FULL, "postgres_a", "schema"),
    Recording(FULL, "postgres_b", "plain"),
    Recording(FULL, "postgres_c", "avro"),
    *(Recording(SHORT, f"{db}_{form}", form) for db in ("mariadb", "postgres") for form in ("schema", "plain", "avro")),
)
LOSSES = {"mariadb": MARIADB, "postgres": POSTGRES}
RENAMED_TABLES = {
    "mariadb": {"unique_renamed": "unique_only"},
    "postgres": {"unique_renamed": "unique_index_identity"},
}
OTHER_TYPES = {
    "late_table.j": "MariaDB's JSON is a longtext in the server's own words, but json in DDL that the stream reads",
    "late_table.b": "BOOLEAN in such DDL is boolean, and a tinyint(1) else",
}
NOT_CAPTURED = {"inet_types"}
"""The connector stops at its column types (uuid, inet4, inet6), so the recording leaves it out."""
NO_LONGER_THERE = {
    "customers.last_name": "a column renamed later keeps its old name in older messages",
    "customers.phone": "a column dropped later stands in older messages",
}

MANGLED = {
    "Gr\uffc3\uffb6\uffc3\uff9fe \uffe2\uff82\uffac": "Größe €",
    "Gr____e____": "Gr__e__",
}
"""PostgreSQL's stream takes each byte of a column's name for a character."""


Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def decoded() -> Mapping[Recording, Rows]:
    """The change rows of all recordings."""
    found = _by_recording(events_of("debezium_json", message_lines(_records("schema"))), "schema")
    # Without schema, a message says nothing of types: the reader has to know the tables.
    tables = told_tables(row for rows in found.values() for row in rows)
    found |= _by_recording(events_of("debezium_json", message_lines(_records("plain")), schema=tables), "plain")
    registry: dict[int, str] = {}
    for number, recording in enumerate(_of_form("avro")):
        file = GOLDEN / recording.folder / f"{recording.name}.registry.json"
        for id, schema in json.loads(file.read_text(encoding="utf-8")).items():
            registry[int(id) + number * IDS_APART] = schema
    rows = events_of("debezium_avro", message_lines(_records("avro")), registry=registry)
    return found | _by_recording(rows, "avro")


IDS_APART = 1000
"""Each recording had a registry of its own: their ids are moved apart, so that one job reads them all."""


def _of_form(form: str) -> list[Recording]:
    return [recording for recording in RECORDINGS if recording.form == form]


def _records(form: str) -> list[dict[str, Any]]:
    records = []
    for number, recording in enumerate(_of_form(form)):
        for record in recording.records:
            if form == "avro":
                record |= {part: _moved(record[part], number * IDS_APART) for part in ("key", "value")}
            records.append(record)
    return records


def _moved(data: Any, distance: int) -> Any:
    """A message in Confluent's framing with another schema id."""
    whole = raw_bytes(data)
    if whole is None:
        return None
    id = int.from_bytes(whole[1:5], "big") + distance
    return {"base64": base64.b64encode(whole[:1] + id.to_bytes(4, "big") + whole[5:]).decode()}


def _by_recording(rows: list[Any], form: str) -> dict[Recording, Rows]:
    prefixes = {recording.records[0]["topic"].partition(".")[0]: recording for recording in _of_form(form)}
    found: dict[Recording, Rows] = {recording: [] for recording in prefixes.values()}
    for row in rows:
        found[prefixes[row.message.topic.partition(".")[0]]].append(row.asDict(recursive=True))
    return found


def losses_of(recording: Recording) -> list[Loss]:
    return LOSSES[recording.database] + (UNTOLD[recording.database] if recording.form == "plain" else [])


def comparison_of(recording: Recording, moment: str, rows: Rows) -> Comparison:
    """The replay of a recording against the tables of its database at one moment."""
    folder, full = recording.truth(moment), recording.folder == FULL
    return compared(
        Comparison(recording.database, losses_of(recording), NO_LONGER_THERE),
        [row for row in rows if moment == "final" or row["op"] == "r"],
        {name: lines for name, lines in read_truth(folder).items() if name not in NOT_CAPTURED},
        read_natives(folder),
        earlier_names=RENAMED_TABLES[recording.database],
        adjusted=_with_new_names if full and moment == "final" else lambda _table, row: row,
        column_name=_avro_name if recording.form == "avro" else str,
    )


def _with_new_names(table: str, row: Held) -> Held:
    """What a reader knows who has seen that `customers.last_name` became `surname`, and how the stream spells names."""
    values = {MANGLED.get(column, column): text for column, text in row.values.items()}
    if table == "customers" and "surname" not in values and "last_name" in values:
        values["surname"] = values["last_name"]
    return Held(values, row.snapshot)


def _avro_name(column: str) -> str:
    """What field.name.adjustment.mode=avro makes of a column's name."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", column)
    return "_" + name if name[0].isdigit() else name


@pytest.mark.parametrize("moment", ["snapshot", "final"])
@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_the_changes_replayed_by_key_are_the_tables(decoded: Any, recording: Recording, moment: str) -> None:
    comparison = comparison_of(recording, moment, decoded[recording])
    assert comparison.differences == []
    assert comparison.values > 150


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_every_message_is_read_and_none_is_an_error(decoded: Any, recording: Recording) -> None:
    rows = decoded[recording]
    errors = [(row["message"]["topic"], row["message"]["offset"], row["error"]) for row in rows]
    assert [error for error in errors if error[2] is not None] == []
    read = {(row["message"]["topic"], row["message"]["offset"]) for row in rows}
    assert {(record["topic"], record["offset"]) for record in recording.records} - read == set()


@pytest.mark.parametrize("recording", [r for r in RECORDINGS if r.form != "plain"], ids=str)
def test_the_types_of_the_columns_are_told(decoded: Any, recording: Recording) -> None:
    """The last structure of each table against the columns' types in the database."""
    natives = read_natives(recording.truth("final"))
    tables = {table.id.name: table for table in told_tables(decoded[recording])}
    wrong, seen = [], 0
    for name, columns in natives.items():
        for column in tables[name].columns if name in tables else ():
            native = {_avro_name(known) if recording.form == "avro" else known: kind for known, kind in columns.items()}
            wanted = logical(recording.database, native[column.name]) if column.name in native else str(column.logical)
            seen += 1
            if str(column.logical) != wanted and f"{name}.{column.name}" not in OTHER_TYPES:
                wrong.append(f"{name}.{column.name} {native[column.name]}: {column.logical}, not {wanted}")
    assert wrong == []
    assert seen > 50


@pytest.mark.parametrize("database", LOSSES)
def test_no_loss_is_listed_that_does_not_occur(decoded: Any, database: str) -> None:
    used: Counter[str] = Counter()
    for recording in RECORDINGS:
        if recording.database == database:
            for moment in ("snapshot", "final"):
                used += comparison_of(recording, moment, decoded[recording]).used
    assert {loss.reason for loss in LOSSES[database] + UNTOLD[database]} - set(used) == set()
