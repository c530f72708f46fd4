"""Pipelines that were found by chance, made small: each once showed something wrong."""

from __future__ import annotations

from typing import Any

from tests.search.drawn import (
    AdHoc,
    Alter,
    Batch,
    Capture,
    Change,
    Column,
    Commit,
    Drain,
    Off,
    On,
    Once,
    Pipeline,
    Table,
)

_REST = (Column("N", "n", "int"), Column("V", "v", "int"), Column("S", "s", "text"), Column("D", "d", "number"))
_KEYED = (Column("ID", "key", "int"), *_REST)
_HALF_NULL = ((None, 1), (None, 2), (None, 3), (1, None), (1, 2), (2, None))


def _two_key_columns(
    server: str, table: str, names: tuple[str, str], key: str, keys: tuple[tuple[Any, Any], ...], *steps: Any
) -> Pipeline:
    """A table of two key columns, read in chunks of two rows."""
    rows = tuple((a, b, n, n, None, None) for n, (a, b) in enumerate(keys))
    columns = (*(Column(name, "key", "int") for name in names), *_REST)
    return Pipeline(
        server=server,
        tables=(Table(table, columns, key, rows=rows),),
        options=(("snapshot_mode", "initial"), ("snapshot_chunk_rows", 2)),
        sinks=("once",),
        steps=steps,
    )


KEPT: dict[str, Pipeline] = {
    "a run that should end does not, where an idle Oracle was read further than its offset says": Pipeline(
        server="oracle",
        tables=(Table("T", _KEYED, "primary"),),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Drain(), Once(), Once()),
    ),
    "rows with NULL in the key come after a chunk's end": _two_key_columns(
        "db2-images",
        "ORDERS",
        ("A", "B"),
        "unique",
        _HALF_NULL,
        Batch(
            point="source.snapshot.chunk",
            meanwhile=Commit((Change(0, "insert", row=(None, 9, 9, 9, None, None)),)),
        ),
        Drain(),
    ),
    "names with commas, quotes and dots in the list of tables and in those of columns": Pipeline(
        server="sqlserver",
        tables=tuple(
            Table(
                name,
                (Column("a,b", "key", "int"), Column("c.d", "n", "int"), *_REST[1:]),
                "primary",
                ((1, 1, 1, "x", None),),
            )
            for name in ("a,b", "a.b", "q'uote")
        ),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Batch(), Commit((Change(0, "insert", row=(2, 2, 2, "secret", None)),)), Once()),
        column_options=((0, 3, "masked"), (1, 3, "left out"), (2, 3, "hashed")),
        listed="names",
    ),
    "a key column that is named as the statements of a snapshot name their own": _two_key_columns(
        "oracle", "T", ("K0", "K1"), "primary", tuple((1, n) for n in (2, 3, 6, 10, 200)), Once()
    ),
    "a table without a key that is empty when it is looked at was not at the snapshot's commit": Pipeline(
        server="sqlserver",
        tables=(Table("T", _REST, "none", rows=((1, 0, "x", None),)),),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Batch(), AdHoc((0,), "blocking"), Commit((Change(0, "delete", high=3),)), Drain()),
    ),
    **{
        f"a batch comes again after capture was switched off and on, which says what it lost: {server}": Pipeline(
            server=server,
            tables=(Table("T", _KEYED, "primary", rows=((1, 1, 1, "x", None),)),),
            options=(("snapshot_mode", "initial"), ("provide_transaction_metadata", True)),
            sinks=("appending", "once"),
            steps=(
                Drain(),
                Commit((Change(0, "insert", row=(2, 2, 2, "y", None)),)),
                Capture(),
                Batch(crash="written 1"),
                Off(0),
                Commit((Change(0, "delete", low=1, high=1),)),
                On(0),
                Once(),
            ),
        )
        for server in ("sqlserver", "db2")
    },
    "a table that is read again where the log stands still is newer than what was read there before": Pipeline(
        server="db2-images",
        tables=(Table("T", _KEYED, "primary", rows=((1, 1, 1, "x", None),)),),
        options=(("snapshot_mode", "always"),),
        sinks=("appending",),
        steps=(
            Drain(),
            AdHoc((0,), "incremental"),
            Drain(),
            Off(0),
            Commit((Change(0, "update", low=1, high=1, values=((2, 7),)),)),
            On(0),
            Once(),
        ),
    ),
    "an ad-hoc snapshot of a table that was read further than an idle log has got": Pipeline(
        server="db2-images",
        tables=(Table("T", _KEYED, "primary"),),
        options=(("snapshot_mode", "initial"),),
        sinks=("once",),
        steps=(Batch(), AdHoc((0,), "incremental"), Alter(0), Batch(), Once()),
    ),
    "a blocking snapshot of a table that has just been read, on an idle database": Pipeline(
        server="db2",
        tables=(
            Table("A", _KEYED, "primary"),
            Table("B", _KEYED, "primary", rows=tuple((n, n, n, "x", None) for n in range(1, 10))),
        ),
        options=(("snapshot_mode", "initial"), ("snapshot_chunk_rows", 2)),
        sinks=("once",),
        steps=(Once(), Alter(1), AdHoc((0, 1), "blocking"), Once()),
    ),
    "a second blocking snapshot of a table that has to catch up with the others after the first": Pipeline(
        server="db2",
        tables=(Table("T", _KEYED, "primary"),),
        options=(("snapshot_mode", "initial"), ("max_commits_per_trigger", 2)),
        sinks=("once",),
        steps=(
            Batch(),
            AdHoc((0,), "blocking"),
            Commit((Change(0, "insert", row=(6, 6, 6, "y", None)),)),
            AdHoc((0,), "blocking"),
            Once(),
        ),
    ),
    "a table that has to catch up with the others when a new process reads all tables again": Pipeline(
        server="db2-images",
        tables=(Table("T", _KEYED, "primary"),),
        options=(("snapshot_mode", "always"),),
        sinks=("appending",),
        steps=(
            Batch(),
            Commit((Change(0, "insert", row=(6, 6, 6, "y", None)),)),
            AdHoc((0,), "blocking"),
            Capture(),
            Batch(),
            Once(),
        ),
    ),
}
