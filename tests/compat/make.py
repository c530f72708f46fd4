"""Makes what is kept of this release in `tests/compat/<version>`; run it once, before the release's forms change.

    python -m tests.compat.make offsets    # the offsets of the captured databases, in every phase

What is there is never made again: a later release reads what an earlier one wrote, so only files of a new version are
added. The tests beside this file go on from them.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compat.databases import MADE, SOURCES, Stream, held, offsets_file, pack, server_file
from tests.contracts.captured_shop import CapturedDatabase, Row

from headrace import __version__
from headrace.sources.signals import Signal

_PLAIN = "id int not null primary key, v varchar(20)"
_SIGNALS = "id varchar(42) not null primary key, type varchar(32), data varchar(2048)"


def offsets() -> None:
    """One run for each source, whose offset is kept after every batch, and a run over two databases."""
    for source in SOURCES:
        with tempfile.TemporaryDirectory() as folder:
            database = MADE[source](Path(folder) / "server")
            kept = list(_story(source, database))
            if source == "sqlserver":
                kept += _two_databases(database)
            database.emulated.close()  # type: ignore[attr-defined]
            pack(Path(folder) / "server", server_file(__version__, source))
        with lzma.open(offsets_file(__version__, source), "wt", encoding="utf-8") as file:
            for entry in kept:
                file.write(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(source, len(kept), sorted({entry["phase"] for entry in kept}))


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
    from headrace.emulators.sqlserver import EmulatedServer

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
        kept = {**_own(options, database), "database": options["database"]}
        yield {"phase": "two databases", "options": kept, "offset": stream.offsets.to_text(), "held": before}
    second.execute("UPDATE dbo.plain SET v = 'z' WHERE id = 2")
    second.capture()
    second.close()


if __name__ == "__main__":
    {"offsets": offsets}[sys.argv[1]]()
