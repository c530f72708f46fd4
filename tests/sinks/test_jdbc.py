"""Rule: the jdbc sink, fed by Spark, does what the contract of table sinks says, with every type exact."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.sinks.databases import Running
from tests.support.jdbc_target import JdbcTarget

from headrace.errors import ConnectError, SchemaError, SinkError
from headrace.testing.change_history import Batch, pos, table
from headrace.testing.faults import InjectedFault
from headrace.testing.table_sinks import TableSinkContract
from headrace.testing.table_target import A, K, T


@pytest.fixture
def target(spark: Any, database: Running) -> JdbcTarget:
    return JdbcTarget(spark, database)


class TestJdbc(TableSinkContract):
    fault_point = "sink.jdbc"
    looked = "staged"
    gaps: ClassVar[Mapping[str, str]] = {
        "test_rows_whose_key_holds_null_are_kept_apart_changed_and_deleted": "a primary key holds no NULL: it stops"
    }


UTC = dt.UTC
TYPES: dict[str, tuple[str, str | None, Any, Any]] = {
    # The logical type, the canonical text, and what PostgreSQL and MariaDB give back.
    "id": ("int64", "-9223372036854775808", -(2**63), -(2**63)),
    "dec": ("decimal(38,10)", *3 * ("-1234567890123456789012345678.0123456789",)),
    "wide": ("decimal(40,2)", *3 * ("12345678901234567890123456789012345678.90",)),
    "big": ("uint64", "18446744073709551615", Decimal(2**64 - 1), 2**64 - 1),
    "small": ("int8", "-128", -128, -128),
    "flag": ("boolean", "false", False, 0),
    "single": ("float32", "3.4028235e+38", 3.4028235e38, 3.40282e38),
    "real": ("float64", "-1.7976931348623157e+308", -1.7976931348623157e308, -1.7976931348623157e308),
    "day": ("date", "0001-01-01", dt.date(1, 1, 1), dt.date(1, 1, 1)),
    "local": ("timestamp(6)", "2018-03-25 02:30:45.123456", *2 * (dt.datetime(2018, 3, 25, 2, 30, 45, 123456),)),
    "precise": ("timestamp(7)", *3 * ("2018-07-13 11:23:45.1234567",)),
    "moment": (
        "instant(3)",
        "2018-07-13T11:23:45.340Z",
        dt.datetime(2018, 7, 13, 11, 23, 45, 340000, UTC),
        dt.datetime(2018, 7, 13, 11, 23, 45, 340000),
    ),
    "zoned": (
        "zoned_timestamp(0)",
        "9999-12-31T12:23:45+11:00",
        dt.datetime(9999, 12, 31, 1, 23, 45, 0, UTC),
        dt.datetime(9999, 12, 31, 1, 23, 45),
    ),
    "clock": (
        "time(3)",
        "23:59:59.999",
        dt.time(23, 59, 59, 999000),
        dt.timedelta(hours=23, minutes=59, seconds=59, milliseconds=999),
    ),
    "raw": ("bytes", "3q2+7wA=", *2 * (b"\xde\xad\xbe\xef\0",)),
    "void": ("bytes", "", b"", b""),
    "text": ("string", *3 * ('O\'Hara \\ "x"\n\r\t\\N %s ${x} ☃ \U0001f600',)),
    "doc": ("json", *3 * ('{"n":123456789012345678901234567890.123456789, "a":"\\u00e9"}',)),
    "who": ("uuid", "00112233-4455-6677-8899-aabbccddeeff", *2 * ("00112233-4455-6677-8899-aabbccddeeff",)),
    "nothing": ("int32", None, None, None),
}


def test_every_type_arrives_exactly_whatever_the_sessions_zone(target: JdbcTarget) -> None:
    before = target.spark.conf.get("spark.sql.session.timeZone")
    typed = table(**{name: kind for name, (kind, *_) in TYPES.items()})
    try:
        target.spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
        target.write(Batch(typed).add("c", typed, 1, {name: text for name, (_, text, *_) in TYPES.items()}))
    finally:
        target.spark.conf.set("spark.sql.session.timeZone", before)
    names = [*TYPES, "_headrace_position"]
    exact = ("dec", "wide", "doc", "who")
    read = [
        f"CAST({target.running.quoted(name)} AS {'text' if target.running.kind == 'postgresql' else 'char'})"
        if name in exact
        else target.running.quoted(name)
        for name in names
    ]
    (row,) = target.running.ask(f"SELECT {', '.join(read)} FROM t")
    found = dict(zip(names, row, strict=True))
    assert found.pop("_headrace_position") == pos(1)
    location = 2 if target.running.kind == "postgresql" else 3
    assert found == {name: expected[location] for name, expected in TYPES.items()}


def test_a_mirror_is_read_back_as_the_source_has_it(target: JdbcTarget) -> None:
    from headrace.apply import profile, upserts
    from headrace.pipeline.comparison import compare
    from headrace.sinks.jdbc.reading import as_compared

    typed = table(**{name: kind for name, (kind, *_) in TYPES.items()})
    row = {name: text for name, (_, text, *_) in TYPES.items()}
    batch = Batch(typed).add("r", typed, "1//1", row, snapshot="true")
    batch.add("r", typed, "1//2", {"id": "1", **{name: None for name in TYPES if name != "id"}}, snapshot="last")
    target.write(batch)
    rows = batch.rows(target.spark)
    (found,) = profile(rows)
    columns = [f"{as_compared(f'row.{column.name}', column)} as {column.name}" for column in typed.columns]
    expected = upserts(rows, found).selectExpr(*columns).persist()
    actual = target.running.sink().now(target.spark, typed)
    assert compare(expected, actual, typed.key).equal
    raw = "'\\x00'" if target.running.kind == "postgresql" else "x'00'"
    target.running.run(f"UPDATE t SET raw = {raw}, small = 1 WHERE id < 0", "DELETE FROM t WHERE id = 1")
    told = compare(expected, actual, typed.key)
    assert {(one.kind, one.columns) for one in told.differences} == {("different", ("small", "raw")), ("missing", ())}
    assert target.running.sink().now(target.spark, table("absent")) is None


@pytest.mark.parametrize("name", ["x]; DROP TABLE y-- a.b %s", "ü`t'q\"{d}\\"])
def test_odd_names_of_tables_and_columns_work(target: JdbcTarget, name: str) -> None:
    odd = table(name, key=("k " + name,), **{"k " + name: "int32", name: "string", "o": "string"})
    row = {"k " + name: "1", name: "v", "o": None}
    target.write(Batch(odd).add("r", odd, 1, row, snapshot="true"), 0)
    target.write(Batch(odd).add("u", odd, 2, {"k " + name: "1", name: "w"}), 1)
    assert target.content(odd) == [(1, "w", None)]


def test_a_batch_that_failed_leaves_no_staging_table(target: JdbcTarget, arm: Callable[[str], None]) -> None:
    batch = Batch(T).add("c", T, 1, A)
    arm("sink.jdbc.before_commit=raise")
    with pytest.raises(InjectedFault):
        target.write(batch)
    target.write(batch)
    assert [name for name in _tables(target) if name.startswith("_headrace_stage")] == []


def _tables(target: JdbcTarget) -> list[str]:
    schema = "current_schema()" if target.running.kind == "postgresql" else "database()"
    return [
        name
        for (name,) in target.running.ask(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = {schema}"
        )
    ]


def test_a_value_that_only_the_database_refuses_stops_without_being_shown(target: JdbcTarget) -> None:
    # No clock has an hour of 70 minutes.
    clock = table(id="int32", at="time(0)")
    with pytest.raises(SchemaError, match=r"A value of table db\.dbo\.t does not fit its column") as caught:
        target.write(Batch(clock).add("c", clock, 1, {"id": "1", "at": "10:70:01"}))
    assert "10:70" not in str(caught.value)
    assert target.content(clock) == []


def test_a_value_that_the_database_has_no_place_for_is_named_or_null(target: JdbcTarget) -> None:
    odd = table("odd", id="int32", at="time(0)", f="float64")
    column, value, kept = {
        "postgresql": ("at", "25:00:00", math.inf),
        "mariadb": ("f", "Infinity", None),
    }[target.running.kind]
    batch = Batch(odd).add("c", odd, 1, {"id": "7", "at": "25:00:00", "f": "Infinity"})
    location = target.running.sink().database.dialect.title
    sentence = (
        f"Column '{column}' of table db.dbo.odd has the value {value} in the row id=7, for which {location} has no"
    )
    with pytest.raises(SchemaError, match=re.escape(sentence)):
        target.write(batch)
    assert target.content(odd) == []
    target.write(batch, unrepresentable="null")
    ((id, at, f),) = target.content(odd)
    assert (id, at is None, f) == (7, target.running.kind == "postgresql", kept)


def test_a_schema_is_made_for_each_schema_of_the_source(target: JdbcTarget) -> None:
    both = Batch(T, K).add("c", T, 1, A).add("c", K, 1, A)
    target.write(both, table_name="new_{schema}.{table}_of_{database}", progress_table="own.progress")
    assert target.running.ask("SELECT a FROM new_dbo.t_of_db") == [("x",)]
    assert target.running.ask("SELECT batch FROM own.progress") == [(0,), (0,)]
    with pytest.raises(SinkError, match="2 tables would share the name"):
        target.write(Batch(T, K).add("c", T, 1, A), 1, table_name="all")


def test_check_says_why_the_database_lets_nobody_in(target: JdbcTarget) -> None:
    target.running.sink().check()
    with pytest.raises(ConnectError, match="refuses the login") as caught:
        target.running.sink(url=target.running.url.replace("target_", "absent_")).check()
    assert "cdc" not in str(caught.value)


def test_the_sink_logs_in_with_what_a_command_prints(target: JdbcTarget) -> None:
    target.running.sink(password=None, password_command="echo cdc").check()
    if target.running.kind == "mariadb":
        with pytest.raises(ConnectError, match="refuses the login"):
            target.running.sink(password=None, password_command="echo of yesterday").check()


KEPT = Path(__file__).parents[1] / "compat"


@pytest.mark.parametrize("version", sorted(file.parent.name for file in KEPT.glob("*/mariadb.sql")))
def test_tables_that_an_earlier_release_left_take_the_batches_that_they_lack(target: JdbcTarget, version: str) -> None:
    running = target.running
    text = (KEPT / version / f"{running.kind}.sql").read_text().replace("THE_DATABASE", running.database)
    running.run(*filter(None, (statement.strip() for statement in text.split(";\n"))))
    u = table("u", id="int32", a="string")
    batch = Batch(T, u).add("u", T, 3, {**A, "a": "z"}, A).add("u", u, 3, {"id": "1", "a": "z"}, {"id": "1", "a": "y"})
    # The seventh is there already, whatever is in it; of the eighth rows had been staged.
    for number, content in ((7, ["x", "y"]), (8, ["z", "z"])):
        target.write(batch, number, "kept")
        assert [row[1] for schema in (T, u) for row in target.content(schema)] == content
    assert running.ask("SELECT batch FROM _headrace_progress") == [(8,), (8,)]
    found = _tables(target)
    # In MariaDB the name of a staging table comes from its database's, which is another one here: nobody looks for it.
    others = set(re.findall(r"_headrace_stage_\w+", text)) if running.kind == "mariadb" else set()
    assert {name for name in found if name.startswith("_headrace_stage")} <= others
