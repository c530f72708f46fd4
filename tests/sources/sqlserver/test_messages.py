"""Rule: a source that is asked for messages gives those that the format makes of its change rows, byte for byte.

Its counts say how many change rows there were, of each table and operation, and when the newest was committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.formats.codec_rows import arrow_format

from headrace.changes import TableSchema
from headrace.errors import OptionError
from headrace.formats.codec import Facts, run_codec
from headrace.formats.encoding import OutOfRange
from headrace.sources.reader import ChangeStreamReader
from headrace_emulators.sqlserver import EmulatedServer
from headrace_emulators.sqlserver.shop import Shop

Counts = Counter[tuple[str, str]]
FORMATS = ("canal_json", "maxwell_json", "ogg_json", "dts_avro", "debezium_json")
OPTIONS = {"debezium_json": {"topic_prefix": "shop", "schemas_enable": "true"}}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop.create(EmulatedServer(tmp_path / "server"), 7, customers=5, products=5)


def options_of(shop: Shop, **more: str) -> dict[str, str]:
    return {"driver": "emulator", **{name: str(value) for name, value in shop.database.settings.items()}, **more}


def trade(shop: Shop) -> None:
    """Changes of all kinds, among them one of a schema."""
    shop.replay(transactions=25)
    shop.database.execute("ALTER TABLE dbo.orders ADD extra int NULL")
    shop.database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'orders', 'dbo_orders_2', @role_name = NULL")
    shop.replay(transactions=25)
    shop.database.capture()


def batches(readers: Sequence[ChangeStreamReader], shop: Shop) -> Iterator[list[list[list[pa.RecordBatch]]]]:
    """What each task of each batch gives by each reader: of the snapshot, and then of changes."""
    start = readers[0].initialOffset()
    traded = False
    while True:
        with shop.database.capturing():
            end = readers[0].latestOffset(start)
            if end != start:
                yield [
                    [list(reader.read(partition)) for partition in reader.partitions(start, end)] for reader in readers
                ]
        if end == start and traded:
            return
        if end == start:
            trade(shop)
            traded = True
        start = end


def encoded(format: str, tasks: list[list[pa.RecordBatch]]) -> list[list[dict[str, Any]]]:
    """The messages that each task's change rows become behind the source, where a batch is looked at first."""
    texts = {text for task in tasks for rows in task for text in rows.column("table_schema").to_pylist()} - {None}
    known = {schema.fingerprint: schema for schema in map(TableSchema.from_text, texts)}
    facts = Facts(tuple(known[fingerprint] for fingerprint in sorted(known)))
    return [
        [
            message
            for made in run_codec(
                arrow_format(format, **OPTIONS.get(format, {})).encoder(facts),
                (rows.append_column("has_types", rows.column("schema_id").is_valid()) for rows in task),
            )
            for message in made.to_pylist()
        ]
        for task in tasks
    ]


def counted(tasks: list[list[pa.RecordBatch]]) -> tuple[Counts, list[Any]]:
    rows = [row for task in tasks for part in task for row in part.to_pylist()]
    counts = Counter(
        (".".join(p for p in (r["table"]["schema"], r["table"]["name"]) if p) if r["table"] else "", r["op"])
        for r in rows
    )
    return counts, sorted({row["event_time"] for row in rows if row["event_time"]}, reverse=True)[:1]


def told(lines: list[dict[str, Any]]) -> tuple[Counts, list[Any]]:
    counts: Counts = Counter()
    for line in lines:
        counts[line["table_path"], line["op"]] += line["rows"]
    return counts, sorted({line["newest"] for line in lines if line["newest"]}, reverse=True)[:1]


@pytest.mark.smoke("debezium_json-true", "canal_json-true", "dts_avro-false")
@pytest.mark.parametrize(
    ("format", "transactions"),
    [*((format, "false") for format in FORMATS), ("canal_json", "true"), ("debezium_json", "true")],
)
def test_messages_and_counts_are_those_of_the_change_rows(shop: Shop, format: str, transactions: str) -> None:
    options = options_of(
        shop, provide_transaction_metadata=transactions, max_commits_per_trigger="20", commits_per_slice="8"
    )
    plain = ChangeStreamReader("sqlserver", {**options, "serialNumbers": str(arrow_format(format).numbered)})
    of_format = {f"format.{name}": value for name, value in OPTIONS.get(format, {}).items()}
    fused = ChangeStreamReader("sqlserver", {**options, "format": format, "format.counts": "true", **of_format})
    found = 0
    for rows, tasks in batches([plain, fused], shop):
        given = [[message for made in task for message in made.to_pylist()] for task in tasks]
        lines = [message["counted"] for task in given for message in task if message["counted"] is not None]
        messages = [[m for m in task if m["counted"] is None] for task in given]
        for task in messages:
            for message in task:
                del message["counted"]
        assert messages == encoded(format, rows)
        assert told(lines) == counted(rows)
        values = sum(len(message["value"] or b"") for task in messages for message in task)
        assert values <= sum(line["bytes"] for line in lines)
        found += sum(map(len, messages))
    assert found > 100


@pytest.mark.parametrize("format", ["canal_json", "debezium_json"])
def test_by_how_many_tasks_tables_are_read_changes_no_message(shop: Shop, format: str) -> None:
    # So a restart on another machine gives a batch the bytes that it had.
    asked = {"format": format, **{f"format.{name}": value for name, value in OPTIONS.get(format, {}).items()}}
    readers = [ChangeStreamReader("sqlserver", options_of(shop, parallelism=n, **asked)) for n in ("1", "16")]
    sizes = set()
    for one, other in batches(readers, shop):
        few, many = ([row for task in tasks for made in task for row in made.to_pylist()] for tasks in (one, other))
        assert few == many
        sizes.add((len(one), len(other)))
    assert any(few < many for few, many in sizes)


def test_what_a_format_does_not_hold_is_told(shop: Shop) -> None:
    # Counts of nanoseconds end in 2262.
    shop.database.execute("CREATE TABLE dbo.ends (id int NOT NULL PRIMARY KEY, at datetime2(7))")
    shop.database.execute("EXEC sys.sp_cdc_enable_table 'dbo', 'ends', @role_name = NULL")
    shop.database.execute("INSERT INTO dbo.ends VALUES (1, '9999-12-31'), (2, '2024-01-01'), (3, '9999-12-31')")
    shop.database.capture()
    asked = {"format": "debezium_json", "format.topic_prefix": "shop", "format.counts": "true"}
    reader = ChangeStreamReader("sqlserver", options_of(shop, tables="dbo.ends", **asked))
    (tasks,) = next(batches([reader], shop))
    found = [line for task in tasks for made in task for line in made.column("counted").to_pylist() if line]
    lost = OutOfRange.of_texts(line["out_of_range"] for line in found)
    assert [(id.path, name, count) for (id, name), count in lost.columns.items()] == [("dbo.ends", "at", 2)]
    assert lost.first == 'table dbo.ends, column at, key ["1"]'


def test_without_counts_there_are_messages_only(shop: Shop) -> None:
    reader = ChangeStreamReader("sqlserver", options_of(shop, format="canal_json", **{"format.topic": "all"}))
    (tasks,) = next(batches([reader], shop))
    messages = [message for task in tasks for made in task for message in made.to_pylist()]
    assert {message["topic"] for message in messages} == {"all"}
    assert all(message["value"] for message in messages)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"format": "shareplex_json"},
            "A source can't give messages of format 'shareplex_json': format 'shareplex_json' is prepared on the "
            "driver for each batch.",
        ),
        ({"format": "canal_json", "format.flavor": "dts"}, "Unknown option 'flavor' for format 'canal_json'."),
        ({"format.topic": "all"}, "Option 'format.topic' needs the option 'format'."),
    ],
)
def test_what_workers_can_not_encode_is_refused_at_the_start(
    shop: Shop, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(OptionError) as refused:
        ChangeStreamReader("sqlserver", options_of(shop, **options))
    assert refused.value.message == sentence
