"""The Delta sink: targets equal their source tables, a replayed batch changes nothing, strangers are refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pytest
from tests.smoke import TABLES
from tests.support.delta_target import DeltaTarget

from headrace.changes.typed import literal
from headrace.errors import HeadraceError, OptionError, SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.sinks.lake.catalog import escaped
from headrace.sinks.lake.delta import table as delta_table
from headrace.sinks.lake.delta.sink import DeltaSink
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.merge import in_spans, key_spans, seen_by
from headrace.sinks.lake.sessions import session_for
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.misfits import KeptType
from headrace.spark.local_rows import local_rows
from headrace.testing.change_history import Batch, pos, table
from headrace.testing.table_sinks import TableSinkContract
from headrace.testing.table_target import A, B, T


@pytest.fixture
def target(spark: Any, tmp_path: Path) -> DeltaTarget:
    return DeltaTarget(spark, tmp_path / "lake")


class TestDelta(TableSinkContract):
    fault_point = "sink.delta"
    never_fits = (
        ({"id": "int32", "a": "string", "b": "string", "A": "string"}, ("id",), "differ only in case"),
        ({"id": "int32", "_headrace_position": "string"}, ("id",), "Headrace's own"),
    )


@pytest.mark.smoke(*TABLES)
class TestDeltaOfOtherReaders(TableSinkContract):
    """Files are rewritten, and no batch goes by an index of keys."""

    fault_point = "sink.delta"

    @pytest.fixture
    def target(self, spark: Any, tmp_path: Path) -> DeltaTarget:
        return DeltaTarget(spark, tmp_path / "lake", readers="other")


def test_a_replayed_batch_makes_no_version(target: DeltaTarget) -> None:
    first = Batch(T).add("r", T, 1, A, snapshot="last")
    batches = [first, Batch(T).add("u", T, 2, {**A, "a": "w"}), Batch(T).add("t", T, 3).add("c", T, 4, B)]
    for number, batch in enumerate(batches):
        target.write(batch, number)
        version = target.version()
        target.write(batch, number)
        target.write(first, 0)
        assert target.version() == version
    assert target.operations() == ["CREATE TABLE", "STREAMING UPDATE", "STREAMING UPDATE", "MERGE"]


def test_a_value_that_is_none_of_a_kept_type_stops_or_is_null_and_counted(target: DeltaTarget) -> None:
    """`try_evolve` and `ignore` keep a column's type where the target can't follow."""
    whole = table("kept", id="int32", n="decimal(9,2)", d="date")
    target.write(Batch(whole).add("c", whole, 1, {"id": "1", "n": "7.00", "d": "2024-02-29"}), 0)
    other = table("kept", id="int32", n="float64", d="string")
    fits = Batch(other).add("c", other, 2, {"id": "2", "n": "8.5", "d": "2024-03-01"})
    target.write(fits, 1, schema_change_behavior="try_evolve")
    first = [(1, Decimal("7.00"), dt.date(2024, 2, 29)), (2, Decimal("8.50"), dt.date(2024, 3, 1))]
    assert target.content(whole) == first
    misfits = Batch(other).add("c", other, 3, {"id": "3", "n": "12.505", "d": None})
    misfits.add("c", other, 4, {"id": "4", "n": "1e+30", "d": "soon"})
    misfits.add("c", other, 5, {"id": "5", "n": None, "d": None})
    for behavior in ("try_evolve", "ignore"):
        with pytest.raises(
            SchemaError, match=r"has the value .+ in the row id=., which the target's type .+ can't hold"
        ):
            target.write(misfits, 2, schema_change_behavior=behavior)
    assert target.content(whole) == first
    sink = target.sink(schema_change_behavior="try_evolve", unrepresentable="null")
    sink.write(misfits.rows(target.spark), BatchId("p", "checkpoint", 2))
    assert target.content(whole) == [*first, *((n, None, None) for n in (3, 4, 5))]
    assert sink.nulled() == {other.id: {"n": 2, "d": 1}}


def test_the_kept_type_has_a_value_where_it_is_the_same_there(spark: Any) -> None:
    cases = [
        ("decimal(9,2)", "int", "12.00", "12"), ("decimal(9,2)", "int", "12.50", None), ("bigint", "int", "7", "7"),
        ("bigint", "int", "3000000000", None), ("bigint", "double", "9007199254740993", None),
        ("double", "int", "1.5", None), ("double", "int", "2", "2"), ("double", "float", "0.1", "0.1"),
        ("decimal(9,4)", "decimal(9,2)", "1.2345", None), ("decimal(9,4)", "decimal(9,2)", "1.2300", "1.23"),
        ("string", "int", "x1", None), ("string", "int", "007", "7"), ("int", "string", "7", "7"),
        ("timestamp_ntz", "date", "2024-01-01 00:00:01", None),
        ("date", "timestamp_ntz", "2024-01-01", "2024-01-01 00:00:00"),
    ]  # fmt: skip
    columns = []
    for number, (kind, kept, text, _) in enumerate(cases):
        value = f"cast({literal(text)} as {kind})"
        columns.append(f"cast({KeptType('t', 'c', kind, kept, True).written(value)} as string) as c{number}")
    assert list(spark.range(1).selectExpr(*columns).first()) == [text for *_, text in cases]


TYPES = {
    "id": ("int64", "-9223372036854775808", -(2**63)),
    "dec": (
        "decimal(38,10)",
        "-1234567890123456789012345678.0123456789",
        Decimal("-1234567890123456789012345678.0123456789"),
    ),
    "wide": ("decimal(40,2)", "12345678901234567890123456789012345678.90", "12345678901234567890123456789012345678.90"),
    "big": ("uint64", "18446744073709551615", Decimal(2**64 - 1)),
    "small": ("int8", "-128", -128),
    "flag": ("boolean", "false", False),
    "real": ("float64", "1e+22", 1e22),
    "day": ("date", "0001-01-01", dt.date(1, 1, 1)),
    "local": ("timestamp(6)", "2018-07-13 11:23:45.123456", dt.datetime(2018, 7, 13, 11, 23, 45, 123456)),
    "precise": ("timestamp(7)", "2018-07-13 11:23:45.1234567", "2018-07-13 11:23:45.1234567"),
    "moment": ("instant(3)", "2018-07-13T11:23:45.340Z", dt.datetime(2018, 7, 13, 11, 23, 45, 340000, dt.UTC)),
    "first": ("timestamp(6)", "0001-01-01 00:00:00.000000", dt.datetime(1, 1, 1)),
    "last": ("timestamp(6)", "9999-12-31 23:59:59.999999", dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    "first_moment": ("instant(6)", "0001-01-01T00:00:00.000000Z", dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
    "last_moment": (
        "instant(6)",
        "9999-12-31T23:59:59.999999Z",
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    ),
    "zoned": ("zoned_timestamp(0)", "2018-07-13T12:23:45+11:00", dt.datetime(2018, 7, 13, 1, 23, 45, 0, dt.UTC)),
    "clock": ("time(3)", "23:59:59.999", "23:59:59.999"),
    "raw": ("bytes", "3q2+7w==", b"\xde\xad\xbe\xef"),
    "text": ("string", 'O\'Hara \\ "x"\n☃', 'O\'Hara \\ "x"\n☃'),
    "nothing": ("int32", None, None),
}


@pytest.mark.smoke("c")
@pytest.mark.usefixtures("generated_code")
@pytest.mark.parametrize("op", ["r", "c"])
def test_every_type_arrives_exactly(target: DeltaTarget, op: str) -> None:
    typed = table(**{name: kind for name, (kind, _, _) in TYPES.items()})
    target.write(Batch(typed).add(op, typed, 1, {name: text for name, (_, text, _) in TYPES.items()}, snapshot="true"))
    (row,) = target.rows(typed)
    assert row.pop("_headrace_position") == pos(1)
    assert row == {name: value for name, (_, _, value) in TYPES.items()}


@pytest.mark.smoke("x]; *")
@pytest.mark.usefixtures("large_targets")
@pytest.mark.parametrize("name", ["x]; DROP TABLE y--", "a.b c", "ü`t'q\n..~"])
def test_odd_names_of_tables_and_columns_work(target: DeltaTarget, name: str) -> None:
    odd = table(name, key=("k " + name,), **{"k " + name: "int32", name: "string", "plain": "string"})
    row = {"k " + name: "1", name: "v", "plain": None}
    target.write(Batch(odd).add("r", odd, 1, row, snapshot="true"), 0)
    target.write(Batch(odd).add("u", odd, 2, {"k " + name: "1", name: "w"}), 1)
    assert target.content(odd) == [(1, "w", None)]
    assert deltalake.DeltaTable(target.path(escaped(name))).version() == 3


def test_folders_of_two_names_are_never_one() -> None:
    names = [".", "..", "~2e", ".a", "a.", "a b", "a~20b", "a/b", "a%20b", "é", "e", "E"]
    assert len({escaped(name) for name in names}) == len(names)
    assert escaped("orders_2024-01.old") == "orders_2024-01.old"


def test_a_table_that_is_not_ours_is_refused(target: DeltaTarget) -> None:
    local_rows(target.spark, [(1, "x", "y")], "id int, a string, b string").write.format("delta").save(target.path("t"))
    with pytest.raises(SinkError, match="to no Headrace pipeline"):
        target.write(Batch(T).add("c", T, 1, B), 0)
    target.write(Batch(T).add("c", T, 1, B), 0, takeover=True)
    assert target.content(T) == [(1, "x", "y"), (2, "z", None)]


def test_a_key_that_spark_reads_with_blanks_behind_it_is_refused_until_it_is_a_string(target: DeltaTarget) -> None:
    schema = table("t", id="string", a="string")
    location = f"delta.`{target.path('t')}`"
    target.spark.sql(f"create table {location} (id char(3), a varchar(3), _headrace_position string) using delta")
    target.spark.sql(f"insert into {location} values ('x', 'old', null)")
    batch = Batch(schema).add("u", schema, 1, {"id": "x", "a": "new"})
    with pytest.raises(SchemaError, match=r"'id' of the key of table .* is char in the Delta table") as refused:
        target.write(batch, 0, takeover=True)
    assert refused.value.remedy is not None
    target.spark.sql(refused.value.remedy.removeprefix("Run: "))
    target.write(batch, 0, takeover=True)
    assert target.content(schema) == [("x", "new")]


def test_two_databases_do_not_share_a_target(target: DeltaTarget) -> None:
    target.write(Batch(T).add("c", T, 1, A), 0)
    with pytest.raises(SinkError, match=r"mirrors db\.dbo\.t, not other\.dbo\.t"):
        target.write(Batch(table(database="other")).add("c", table(database="other"), 1, A), 1)
    both = Batch(T, table(database="other")).add("c", T, 1, A)
    with pytest.raises(SinkError, match="would share the target"):
        target.write(both, 1)


def test_the_session_of_the_user_keeps_its_settings(target: DeltaTarget) -> None:
    before = dict(target.spark.conf.getAll)
    target.write(Batch(T).add("u", T, 1, A), 0)
    assert dict(target.spark.conf.getAll) == before


def test_check_says_when_the_folder_can_not_be_written(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, fits in ((tmp_path / "new" / "lake", True), (tmp_path / "file" / "lake", False)):
        sink = DeltaSink.of({"path": str(path)})
        if fits:
            sink.check()
            assert not (tmp_path / "new").exists()
        else:
            with pytest.raises(SinkError, match="can't be written"):
                sink.check()


def test_a_table_can_be_clustered_by_its_key(target: DeltaTarget) -> None:
    odd = table(key=("a.b", "id"), **{"id": "int32", "a.b": "string"})
    target.write(Batch(odd).add("c", odd, 1, {"id": "1", "a.b": "x"}), 0, cluster_by_key=True)
    (detail,) = target.spark.sql(f"describe detail delta.`{target.path('t')}`").collect()
    assert detail["clusteringColumns"] == ["`a.b`", "id"]


def test_a_key_behind_many_columns_has_statistics(target: DeltaTarget) -> None:
    wide = table(**{f"c{number}": "string" for number in range(40)}, id="int32")
    target.write(Batch(wide).add("c", wide, 1, {"id": "7"} | {f"c{number}": "x" for number in range(40)}), 0)
    (file,) = deltalake.DeltaTable(target.path("t")).get_add_actions(flatten=True).to_struct_array().to_pylist()
    assert (file["min.id"], file["max.id"]) == (7, 7)


KEYS = {
    "int": "cast(id as int)",
    "bigint": "id * 1000000000000",
    "decimal(20,4)": "cast(id as decimal(20,4)) / 8",
    "date": "date_add(date'1582-01-01', cast(id * 100 as int))",
    "timestamp": "timestamp_micros(id * 3600000001 - 100)",
    "timestamp_ntz": "timestampadd(hour, id, timestamp_ntz'0001-01-01 00:00:00.000001')",
    "string": "concat(lpad(hex(id * 3), 4, '0'), '-0000-4000-8000-', repeat(char(97 + id % 26), 80))",
}


@pytest.mark.parametrize(("format", "metric"), [("delta", "numFiles"), ("iceberg", "resultDataFiles")])
def test_files_without_a_key_of_the_batch_are_skipped(spark: Any, tmp_path: Path, format: str, metric: str) -> None:
    names = {kind: f"k{n}" for n, kind in enumerate(KEYS)}
    made = spark.range(0, 80, 1, 8).selectExpr(*(f"{text} as {names[kind]}" for kind, text in KEYS.items()))
    session = session_for(spark, 1)
    session.conf.set("spark.sql.catalog.ranges", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.ranges.type", "hadoop")
    session.conf.set("spark.sql.catalog.ranges.warehouse", str(tmp_path))
    name = f"delta.`{tmp_path}/t`" if format == "delta" else "ranges.a.t"
    target = SimpleNamespace(session=session)
    with seen_by(target, made) as rows:  # type: ignore[arg-type]
        session.sql(f"create table {name} using {format} as select * from {rows}")
        two = session.table(rows).where("k0 in (73, 74)").selectExpr("struct(*) as row")
        found = key_spans(two, [(names[kind], kind) for kind in KEYS], 2)
    assert len(found) == len(KEYS)
    for kind, condition in zip(KEYS, in_spans(found), strict=True):
        query = session.table(name).where(condition)._jdf
        plan = query.queryExecution().executedPlan()
        assert len(query.collect()) == 2, kind
        assert plan.collectLeaves().head().metrics().get(metric).get().value() == 1, kind


def test_what_delta_refuses_of_one_table_is_its_own_and_the_others_are_written(target: DeltaTarget) -> None:
    constrained, fine = table("a"), table("fine")
    target.write(Batch(constrained, fine).add("c", constrained, 1, A).add("c", fine, 2, A), 0)
    target.spark.sql(f"ALTER TABLE delta.`{target.path('a')}` ADD CONSTRAINT short CHECK (a <> 'secret7')")
    more = Batch(constrained, fine).add("c", constrained, 3, {**A, "id": "2", "a": "secret7"})
    with pytest.raises(HeadraceError) as caught:
        target.write(more.add("c", fine, 4, {**A, "id": "2"}), 1)
    assert caught.value.table == constrained.id
    assert "secret7" not in str(caught.value)
    assert [len(target.content(schema)) for schema in (constrained, fine)] == [1, 2]


def test_the_log_says_of_a_table_what_queries_say(target: DeltaTarget) -> None:
    """Columns of all types, more features than one, and a nested column of somebody else's."""
    folder = target.path("t")
    kinds = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,3)", "boolean", "string", "binary")
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate((*kinds, "date", "timestamp", "timestamp_ntz")))
    target.spark.sql(
        f"create table delta.`{folder}` ({columns}) using delta tblproperties "
        "('delta.enableDeletionVectors' = 'true', 'headrace.owner' = 'p', 'delta.enableTypeWidening' = 'true')"
    )
    for change in ("", "add columns (more array<struct<a:int>>)"):
        if change:
            target.spark.sql(f"alter table delta.`{folder}` {change}")
        mirror = DeltaTable(target.spark, folder)
        assert mirror.properties() == LakeTable.properties(mirror)
        assert mirror.types() == LakeTable.types(mirror)


def test_new_tables_write_checkpoints_of_their_logs_rarely_and_not_all_in_one_batch(target: DeltaTarget) -> None:
    """Unless the session has an interval for new tables."""
    tables = [table(f"t{n}") for n in range(4)]
    batch = Batch(*tables)
    for n, one in enumerate(tables):
        batch.add("c", one, n, A)
    target.write(batch, 0)
    name = "delta.checkpointInterval"
    intervals = [int(DeltaTable(target.spark, target.path(f"t{n}")).properties()[name]) for n in range(4)]
    assert all(80 <= interval < 120 for interval in intervals)
    assert len(set(intervals)) > 1
    setting = "spark.databricks.delta.properties.defaults.checkpointInterval"
    target.spark.conf.set(setting, "7")
    try:
        target.write(Batch(asked := table("asked")).add("c", asked, 9, A), 1)
    finally:
        target.spark.conf.unset(setting)
    assert DeltaTable(target.spark, target.path("asked")).properties()[name] == "7"


def test_the_log_of_new_tables_is_kept_as_long_as_their_old_files(tmp_path: Path, spark: Any) -> None:
    target = DeltaTarget(spark, tmp_path / "lake", compact_every=9, vacuum_retain_hours=200)
    target.write(Batch(kept := table("kept")).add("c", kept, 1, A), 0)
    assert DeltaTable(spark, target.path("kept")).properties()["delta.logRetentionDuration"] == "interval 200 hours"


def test_a_session_without_delta_is_said_and_not_a_failure_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_table, "can_clone", lambda session: True)
    session = SimpleNamespace(_jvm=SimpleNamespace(**{"io.delta.tables.DeltaTable": object()}))
    with pytest.raises(OptionError, match="This Spark session was started without Delta Lake"):
        DeltaTable(session, "/lake/t").exists  # noqa: B018
