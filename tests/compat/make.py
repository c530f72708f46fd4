"""Makes what is kept of this release in `tests/compat/<version>`; run it when a release is made (CONTRIBUTING.md).

    python -m tests.compat.make            # all of it; needs PostgreSQL and MariaDB on this machine
    python -m tests.compat.make offsets    # the offsets of the captured databases, in every phase
    python -m tests.compat.make logs       # the same of databases that have logs of their own, with their servers
    python -m tests.compat.make targets    # checkpoints of pipelines and their targets, left in the middle of a batch
    python -m tests.compat.make databases  # tables of a database, left in the middle of a batch

What a release left is never made again: later ones read what it wrote, so only files of a new version are added. A
version of development (`.dev`) is what main has now, and is made as often as one likes. The tests beside this file go
on from them.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compat.databases import HERE, LOG_SOURCES, MADE, SOURCES, Stream, held, offsets_file, server_file
from tests.compat.log_databases import serving
from tests.compat.packing import pack
from tests.compat.pipelines import kept, shop_pipeline, topic_pipeline

from headrace.sources.signals import Signal
from headrace.testing.captured_database import CapturedDatabase
from headrace.testing.faults import InjectedFault
from headrace.testing.sources import Row
from headrace.versions import __version__

_PLAIN = "id int not null primary key, v varchar(20)"
_SIGNALS = "id varchar(42) not null primary key, type varchar(32), data varchar(2048)"


def offsets() -> None:
    """One run for each source, whose offset is kept after every batch, and a run over two databases."""
    for source in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            database = MADE[source](Path(folder) / "server")
            entries = list(_story(source, database))
            if source == "sqlserver":
                entries += _two_databases(database)
            database.emulated.close()  # type: ignore[attr-defined]
            pack(Path(folder) / "server", server_file(__version__, source))
        _keep_offsets(source, entries)


def _keep_offsets(source: str, entries: list[Row]) -> None:
    with lzma.open(offsets_file(__version__, source), "wt", encoding="utf-8") as file:
        for entry in entries:
            file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(source, len(entries), sorted({entry["phase"] for entry in entries}))


def logs() -> None:
    """One run for each source that reads a database's own log, and the data folder of the server."""
    for source in LOG_SOURCES:
        with serving(source) as (server, database):
            entries: list[Row] = []
            for entry in _story(source, database):
                if not entries:
                    database.remember()
                entries.append(entry)
            server.stop()
            pack(server.data, server_file(__version__, source))
            server.start()
        _keep_offsets(source, entries)


def _story(source: str, database: CapturedDatabase) -> Iterator[Row]:
    """Every phase of a stream, in batches that are as small as can be."""
    database.create("plain", _PLAIN, [(n, f"v{n}") for n in range(5)])
    database.create("pair", "a int not null, b varchar(9) not null, v varchar(20), primary key (a, b)",
                    [(n // 3, f"b{n}", None if n % 2 else "x") for n in range(7)])  # fmt: skip
    database.create("empty", _PLAIN)
    database.create("bare", "a int, v varchar(20)", [(1, "x"), (1, "x"), (2, None)])
    database.create("signals", _SIGNALS)
    database.create("later", _PLAIN, [(n, "late") for n in range(4)])
    names = [database.named(name) for name in ("plain", "pair", "empty", "bare", "signals")]
    options: Row = {
        **database.options,
        "tables": ",".join(names),
        "snapshot_chunk_rows": "2",
        "snapshot_chunks_per_batch": "1",
        "incremental_snapshot_chunk_size": "2",
        "signal_data_collection": database.named("signals"),
        "heartbeat_interval_ms": "1000",
    }
    before: dict[str, Any] = {}
    stream = Stream(source, options)

    def until_level(phase: str) -> Iterator[Row]:
        nonlocal before
        for _ in range(200):
            last = stream.offsets
            with database.capturing():
                rows = stream.batch()
            if stream.offsets == last:
                return
            before = held(rows, before)
            yield {
                "phase": phase,
                "options": _own(options, database),
                "offset": stream.offsets.to_text(),
                "held": before,
            }
        raise AssertionError(phase)

    def changes(round: int) -> None:
        database.insert("plain", 100 + round, f"r{round}")
        database.update("plain", f"v = 'u{round}'", "id = 1")
        database.update("pair", f"b = 'm{round}'", "a = 0 and v is null")
        database.delete("plain", f"id = {round + 1}")
        database.insert("later", 200 + round, "new")
        database.capture()

    def ask(number: int, what: str, /, **data: Any) -> None:
        from headrace.sources.reader import source_named

        source_named(source, options).signal(Signal(f"s{number}", what, json.dumps(data)))
        database.capture()

    snapshot = until_level("snapshot")
    for _ in range(3):
        yield next(snapshot)
    changes(1)
    yield from snapshot
    changes(2)
    yield from until_level("stream")
    options["tables"] += f",{database.named('later')}"
    stream = Stream(source, options, stream.offsets.to_text())
    added = until_level("a table added")
    yield next(added)
    changes(3)
    yield from added
    with database.transaction() as cursor:
        cursor.execute(f"INSERT INTO {database.schema}.plain VALUES (300, 'one')")
        cursor.execute(f"INSERT INTO {database.schema}.pair VALUES (300, 'b', 'one')")
    database.capture()
    yield from until_level("stream")
    ask(1, "execute-snapshot", **{"data-collections": [database.named("plain"), database.named("pair")]})
    asked = until_level("ad-hoc snapshot")
    yield next(asked)
    yield next(asked)
    changes(4)
    yield next(asked)
    ask(2, "pause-snapshot", type="incremental")
    yield from until_level("ad-hoc snapshot paused")
    changes(5)
    yield from until_level("ad-hoc snapshot paused")
    ask(3, "resume-snapshot", type="incremental")
    yield from until_level("ad-hoc snapshot resumed")
    ask(4, "execute-snapshot", **{"data-collections": [database.named("later")], "type": "blocking"})
    yield from until_level("blocking snapshot")
    changes(6)
    yield from until_level("stream")
    # What a run that goes on finds.
    changes(7)


def _own(options: Row, database: CapturedDatabase) -> Row:
    """The options without those that say where the database is."""
    return {name: value for name, value in options.items() if name not in database.options}


def _two_databases(database: Any) -> Iterator[Row]:
    from headrace_emulators.sqlserver import EmulatedServer

    second = EmulatedServer(database.emulated.path.parent).create_database("second")
    second.execute(f"CREATE TABLE dbo.plain ({_PLAIN})")
    second.execute("INSERT INTO dbo.plain VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    second.execute("EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'plain', @role_name = NULL")
    second.capture()
    options: Row = {
        **database.options,
        "database": "shop,second",
        "tables": "dbo.plain",
        "snapshot_chunk_rows": "2",
        "snapshot_chunks_per_batch": "1",
    }
    stream, before = Stream("sqlserver", options), {}
    while True:
        last = stream.offsets
        rows = stream.batch()
        if stream.offsets == last:
            break
        before = held(rows, before)
        own = {**_own(options, database), "database": options["database"]}
        yield {"phase": "two databases", "options": own, "offset": stream.offsets.to_text(), "held": before}
    second.execute("UPDATE dbo.plain SET v = 'z' WHERE id = 2")
    second.capture()
    second.close()


def targets() -> None:
    """Two pipelines, one from a database and one from a topic, and tables that were filled without a pipeline."""
    from headrace.spark.jars import AVRO, DELTA, ICEBERG, KAFKA
    from headrace.spark.session import spark_session

    spark = spark_session("compat", jars=(KAFKA, DELTA, AVRO, ICEBERG), master="local[2]")
    for name, make in (("shop", _shop), ("topic", _topic), ("by-hand", _by_hand)):
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made) / name
            folder.mkdir()
            make(spark, folder)
            pack(folder, kept(__version__, name))
            print(name, kept(__version__, name).stat().st_size)


def _shop(spark: Any, folder: Path) -> None:
    """A batch is in all sinks but the last when the run stops, and changes come after it."""
    from headrace.pipeline import load_pipeline

    database = MADE["sqlserver"](folder / "server")
    database.create("customers", "id int not null primary key, name varchar(20)", [(1, "a"), (2, "b"), (3, "c")])
    database.create("log", "happened int, what varchar(20)", [(1, "x"), (1, "x")])
    file = shop_pipeline(folder)
    with database.capturing():
        assert load_pipeline(file).start(spark, once=True).wait(120)
    database.update("customers", "name = 'B'", "id = 2")
    database.delete("customers", "id = 3")
    database.insert("log", 2, "y")
    database.capture()
    with tempfile.TemporaryDirectory() as faults:
        os.environ |= {"HEADRACE_FAULT_DIR": faults, "HEADRACE_FAULTPOINTS": "pipeline.sink.4.written=raise"}
        try:
            load_pipeline(file).start(spark, once=True).wait(120)
        except InjectedFault:
            print("stopped before the last sink")
        del os.environ["HEADRACE_FAULTPOINTS"]
    database.insert("customers", 4, "d")
    database.insert("log", 3, "z")
    database.capture()
    database.emulated.close()  # type: ignore[attr-defined]


def _topic(spark: Any, folder: Path) -> None:
    from confluent_kafka import Producer

    from headrace.pipeline import load_pipeline
    from headrace_emulators.kafka.broker import KafkaBroker

    with tempfile.TemporaryDirectory() as place, KafkaBroker(place) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for n in range(3):
            source = {"version": "3", "connector": "mysql", "name": "s", "ts_ms": n, "db": "d", "table": "t"}
            value = {"before": None, "after": {"id": n, "v": f"v{n}"}, "source": source, "op": "c", "ts_ms": n}
            producer.produce("t", key=json.dumps({"id": n}), value=json.dumps(value), partition=0)
        producer.flush(20)
        load_pipeline(topic_pipeline(folder, broker.bootstrap)).start(spark, once=True).wait(120)


def _by_hand(spark: Any, folder: Path) -> None:
    import headrace

    rows = spark.createDataFrame([(1, "a", 1), (2, "b", 1)], "id int, v string, at int")
    for stored_as in (1, "append"):
        place = f"{folder}/{stored_as}"
        headrace.apply_changes(rows, place, ["id"], "at", stored_as_scd_type=stored_as, batch_id=3)


def databases() -> None:
    """A table that has a batch, and one whose next batch lay in its staging table when the run stopped."""
    from headrace.spark.session import spark_session

    spark = spark_session("compat", master="local[2]")
    from tests.sinks.databases import fresh_database, serving

    from headrace.sinks.base import BatchId
    from headrace.sinks.jdbc.dialect import Mirror, TableName
    from headrace.sinks.jdbc.mariadb import MariaDbDialect
    from headrace.testing.change_history import Batch, table

    t, u = table("t"), table("u", id="int32", a="string")
    first = Batch(t, u).add("c", t, 1, {"id": "1", "a": "x", "b": None}).add("c", u, 2, {"id": "1", "a": "y"})
    second = Batch(t).add("u", t, 3, {"id": "1", "a": "z", "b": None}, {"id": "1", "a": "x", "b": None})
    with serving("postgresql") as server:
        running = fresh_database("postgresql", server)
        running.sink().write(first.rows(spark), BatchId("kept", "checkpoint", 7))
        with tempfile.TemporaryDirectory() as faults:
            os.environ |= {"HEADRACE_FAULT_DIR": faults, "HEADRACE_FAULTPOINTS": "sink.jdbc.staged=raise"}
            try:
                running.sink().write(second.rows(spark), BatchId("kept", "checkpoint", 8))
            except InjectedFault:
                print("stopped before the rows in the staging table were applied")
            del os.environ["HEADRACE_FAULTPOINTS"]
        command = ["pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "cdc", "--inserts", "--no-owner"]
        text = subprocess.run([*command, running.database], capture_output=True, check=True, text=True).stdout
        lines = [line for line in text.splitlines() if line and not line.startswith(("--", "\\", "SET ", "SELECT "))]
        (HERE / __version__ / "postgresql.sql").write_text("\n".join(lines) + "\n")
    # The same tables by the statements that the sink sends to MariaDB, which not every machine has.
    dialect = MariaDbDialect()
    progress = TableName("THE_DATABASE", "_headrace_progress")
    mirrors = [Mirror(TableName("THE_DATABASE", schema.id.name), schema, "_headrace_position") for schema in (t, u)]
    statements = [dialect.create_progress(progress), *(s for m in mirrors for s in dialect.create_table(m))]
    statements += dialect.create_stage(mirrors[0])
    stage = dialect.table(mirrors[0].stage)
    statements += [
        *(
            f"INSERT INTO {dialect.table(progress)} (target, owner, batch, source_table, key_columns) VALUES "
            f"('{dialect.table(m.name)}', 'kept/checkpoint', 7, '{m.source.id.full_path}', '\"id\"')"
            for m in mirrors
        ),
        f"INSERT INTO {stage} VALUES ('ac40a8222eed4bb3903287903ac46456', 'u', '00000003//', NULL, NULL, 1, 'z', NULL)",
        f"INSERT INTO {dialect.table(mirrors[0].name)} VALUES (1, 'x', NULL, '00000001//')",
        f"INSERT INTO {dialect.table(mirrors[1].name)} VALUES (1, 'y', '00000002//')",
    ]
    (HERE / __version__ / "mariadb.sql").write_text(";\n".join(statements) + ";\n")


def main(*named: str) -> None:
    """Make these, or all.

    Raises:
        SystemExit: this is a release of which something is kept.
    """
    if "dev" not in __version__ and not named and (HERE / __version__).exists():
        raise SystemExit(f"tests/compat/{__version__} is there, and what a release left is never made again.")
    made = {"offsets": offsets, "logs": logs, "targets": targets, "databases": databases}
    for name in named or made:
        made[name]()


if __name__ == "__main__":
    main(*sys.argv[1:])
