"""The Delta sink: targets equal their source tables, a replayed batch changes nothing, strangers are refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from change_history import Batch, pos, table

from headrace.changes import Column, LogicalType
from headrace.errors import SchemaError, SinkError
from headrace.faultpoints import InjectedFault
from headrace.options import parse_options
from headrace.sinks.base import BatchId
from headrace.sinks.delta import DeltaSink
from headrace.sinks.delta_table import escaped

T = table()
K = table("k", key=())
A = {"id": "1", "a": "x", "b": "y"}
B = {"id": "2", "a": "z", "b": None}


class Mirrors:
    """A sink on a folder, and what its tables hold."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def write(self, batch: Batch, number: int = 0, owner: str = "p", **options: Any) -> None:
        given = {"path": str(self.folder), **options}
        sink = DeltaSink(parse_options(DeltaSink.options, given, owner="sink 'delta'"))
        sink.write(batch.rows(self.spark), BatchId(owner, "checkpoint", number))

    def path(self, name: str) -> str:
        return str(self.folder / "dbo" / name)

    def content(self, name: str = "t") -> list[tuple[Any, ...]]:
        rows = self.spark.read.format("delta").load(self.path(name)).drop("_headrace_position").collect()
        return sorted((tuple(row) for row in rows), key=repr)

    def version(self, name: str = "t") -> int:
        return int(deltalake.DeltaTable(self.path(name)).version())

    def operations(self, name: str = "t") -> list[str]:
        history = deltalake.DeltaTable(self.path(name)).history()
        return [entry["operation"] for entry in reversed(history)]


@pytest.fixture
def mirrors(spark: Any, tmp_path: Path) -> Mirrors:
    return Mirrors(spark, tmp_path / "lake")


def test_batches_bring_the_mirror_to_the_source_and_replays_change_nothing(mirrors: Mirrors) -> None:
    batches: list[tuple[Batch, list[Any], list[Any]]] = [
        (
            Batch(T, K)
            .add("r", T, 1, A, snapshot="true")
            .add("r", T, 2, B, snapshot="last")
            .add("r", K, 3, A, snapshot="last")
            .add("r", K, 4, A, snapshot="last"),
            [(1, "x", "y"), (2, "z", None)],
            [(1, "x", "y"), (1, "x", "y")],
        ),
        (
            Batch(T, K)
            .add("u", T, 10, {**A, "id": "3"}, A)
            .add("d", T, 11, None, B)
            .add("c", T, 12, {**B, "b": "again"})
            .add("u", K, 13, B, A),
            [(2, "z", "again"), (3, "x", "y")],
            [(1, "x", "y"), (2, "z", None)],
        ),
        (
            Batch(T, K).add("u", T, 20, {"id": "3", "b": None}).add("d", T, 21, None, B).add("d", K, 22, None, B),
            [(3, "x", None)],
            [(1, "x", "y")],
        ),
        (
            Batch(T, K).add("t", T, 30).add("c", T, 31, A).add("t", K, 32).add("c", K, 33, B),
            [(1, "x", "y")],
            [(2, "z", None)],
        ),
    ]
    for number, (batch, keyed, keyless) in enumerate(batches):
        mirrors.write(batch, number)
        assert (mirrors.content("t"), mirrors.content("k")) == (keyed, keyless)
        versions = mirrors.version("t"), mirrors.version("k")
        mirrors.write(batch, number)
        assert (mirrors.version("t"), mirrors.version("k")) == versions
    first = batches[0][0]
    mirrors.write(first, 0)
    assert (mirrors.content("t"), mirrors.content("k")) == batches[-1][1:]
    assert mirrors.operations("t") == ["CREATE TABLE", "WRITE", "MERGE", "MERGE", "MERGE"]


def test_a_snapshot_after_a_streamed_change_is_merged(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("c", T, 1, A), 0)
    mirrors.write(Batch(T).add("r", T, 2, {**A, "a": "read"}, snapshot="true"), 1)
    assert mirrors.content() == [(1, "read", "y")]


def test_a_late_change_does_not_win(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("u", T, 9, A), 0)
    mirrors.write(Batch(T).add("r", T, 3, {**A, "a": "older"}, snapshot="incremental").add("d", T, 4, None, A), 1)
    assert mirrors.content() == [(1, "x", "y")]


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
    "zoned": ("zoned_timestamp(0)", "2018-07-13T12:23:45+11:00", dt.datetime(2018, 7, 13, 1, 23, 45, 0, dt.UTC)),
    "clock": ("time(3)", "23:59:59.999", "23:59:59.999"),
    "raw": ("bytes", "3q2+7w==", b"\xde\xad\xbe\xef"),
    "text": ("string", 'O\'Hara \\ "x"\n☃', 'O\'Hara \\ "x"\n☃'),
    "nothing": ("int32", None, None),
}


@pytest.mark.parametrize("op", ["r", "c"])
def test_every_type_arrives_exactly(mirrors: Mirrors, op: str) -> None:
    typed = table(**{name: kind for name, (kind, _, _) in TYPES.items()})
    mirrors.write(Batch(typed).add(op, typed, 1, {name: text for name, (_, text, _) in TYPES.items()}, snapshot="true"))
    (row,) = deltalake.DeltaTable(mirrors.path("t")).to_pyarrow_table().to_pylist()
    assert row.pop("_headrace_position") == pos(1)
    assert row == {name: value for name, (_, _, value) in TYPES.items()}


@pytest.mark.parametrize("name", ["x]; DROP TABLE y--", "a.b c", "ü`t'q\n..~"])
def test_odd_names_of_tables_and_columns_work(mirrors: Mirrors, name: str) -> None:
    odd = table(name, key=("k " + name,), **{"k " + name: "int32", name: "string", "plain": "string"})
    row = {"k " + name: "1", name: "v", "plain": None}
    mirrors.write(Batch(odd).add("r", odd, 1, row, snapshot="true"), 0)
    mirrors.write(Batch(odd).add("u", odd, 2, {"k " + name: "1", name: "w"}), 1)
    assert mirrors.content(escaped(name)) == [(1, "w", None)]
    assert deltalake.DeltaTable(mirrors.path(escaped(name))).version() == 3


def test_folders_of_two_names_are_never_one() -> None:
    names = [".", "..", "~2e", ".a", "a.", "a b", "a~20b", "a/b", "a%20b", "é", "e", "E"]
    assert len({escaped(name) for name in names}) == len(names)
    assert escaped("orders_2024-01.old") == "orders_2024-01.old"


def test_a_new_column_is_added(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("c", T, 1, A).add("c", T, 2, B), 0)
    newer = replace(T, columns=(*T.columns, Column("c d", 4, LogicalType("decimal", 10, 2), comment="it's new")))
    batch = Batch(T).structure(newer, 10).add("u", T, 9, {**A, "a": "old"}).add("u", newer, 11, {**B, "c d": "1.50"})
    for _ in range(2):
        mirrors.write(batch, 1)
        assert mirrors.content() == [(1, "old", "y", None), (2, "z", None, Decimal("1.50"))]


@pytest.mark.parametrize(
    ("columns", "key", "message"),
    [
        ({"id": "int32", "a": "string"}, ("id",), "has no column 'b' any more"),
        ({"id": "int32", "a": "int32", "b": "string"}, ("id",), "Column 'a' of table db.dbo.t is int now, but string"),
        ({"id": "int32", "a": "string", "b": "string"}, ("a",), "The key of table db.dbo.t is"),
        ({"id": "int32", "a": "string", "b": "string", "A": "string"}, ("id",), "differ only in case"),
        ({"id": "int32", "_headrace_position": "string"}, ("id",), "Headrace's own"),
    ],
)
def test_any_other_change_of_structure_is_refused_before_anything(
    mirrors: Mirrors, columns: dict[str, str], key: tuple[str, ...], message: str
) -> None:
    mirrors.write(Batch(T).add("c", T, 1, A), 0)
    version = mirrors.version()
    changed = table(key=key, **columns)
    other = table("other")
    batch = Batch(changed, other).add("c", changed, 2, dict.fromkeys(columns, "1")).add("c", other, 3, A)
    with pytest.raises(SchemaError, match=message):
        mirrors.write(batch, 1)
    assert mirrors.version() == version
    assert not Path(mirrors.path("other")).exists()


def test_a_target_of_another_owner_is_refused_unless_taken_over(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("c", T, 5, A), 7)
    again = Batch(T).add("u", T, 6, {**A, "a": "mine"})
    with pytest.raises(SinkError, match="belongs to the pipeline and checkpoint 'p/checkpoint', not to 'q/checkpoint'"):
        mirrors.write(again, 0, owner="q")
    mirrors.write(again, 0, owner="q", takeover="true")
    assert mirrors.content() == [(1, "mine", "y")]
    with pytest.raises(SinkError, match="'takeover'"):
        mirrors.write(Batch(T).add("u", T, 7, A), 8)


def test_a_table_that_is_not_ours_is_refused(mirrors: Mirrors) -> None:
    mirrors.spark.createDataFrame([(1, "x", "y")], "id int, a string, b string").write.format("delta").save(
        mirrors.path("t")
    )
    with pytest.raises(SinkError, match="to no Headrace pipeline"):
        mirrors.write(Batch(T).add("c", T, 1, B), 0)
    mirrors.write(Batch(T).add("c", T, 1, B), 0, takeover=True)
    assert mirrors.content() == [(1, "x", "y"), (2, "z", None)]


def test_two_databases_do_not_share_a_target(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("c", T, 1, A), 0)
    with pytest.raises(SinkError, match=r"mirrors db\.dbo\.t, not other\.dbo\.t"):
        mirrors.write(Batch(table(database="other")).add("c", table(database="other"), 1, A), 1)
    both = Batch(T, table(database="other")).add("c", T, 1, A)
    with pytest.raises(SinkError, match="would share the folder"):
        mirrors.write(both, 1)


def test_a_partial_update_without_its_row_stops_and_leaves_the_table(mirrors: Mirrors) -> None:
    mirrors.write(Batch(T).add("c", T, 1, A), 0)
    lost = Batch(T).add("u", T, 2, {**A, "a": "w"}).add("u", T, 3, {"id": "77", "a": "q"})
    with pytest.raises(SchemaError, match="no row of its key"):
        mirrors.write(lost, 1)
    assert mirrors.content() == [(1, "x", "y")]
    mirrors.write(lost, 1, missing_row="insert")
    assert mirrors.content() == [(1, "w", "y"), (77, "q", None)]


def test_a_value_that_does_not_fit_stops_without_being_shown(mirrors: Mirrors) -> None:
    with pytest.raises(SchemaError, match="does not fit its column's type") as caught:
        mirrors.write(Batch(T).add("c", T, 1, {**A, "id": "secret7"}), 0)
    assert "secret7" not in str(caught.value)
    assert mirrors.content() == []


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def armed(points: str) -> None:
        folder = tmp_path / "faults"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("HEADRACE_FAULT_DIR", str(folder))
        monkeypatch.setenv("HEADRACE_FAULTPOINTS", points)

    return armed


@pytest.mark.parametrize("point", ["sink.delta.before_commit=raise@2", "sink.delta.after_commit=raise@1"])
def test_after_one_table_failed_a_retry_gives_every_table_the_batch_once(
    mirrors: Mirrors, arm: Callable[[str], None], point: str
) -> None:
    mirrors.write(Batch(T, K).add("r", T, 1, A, snapshot="true").add("c", K, 2, A), 0)
    batch = Batch(T, K).add("u", T, 3, {**A, "a": "w"}).add("u", K, 4, A, A).add("c", K, 5, A)
    arm(point)
    with pytest.raises(InjectedFault):
        mirrors.write(batch, 1)
    mirrors.write(batch, 1)
    assert mirrors.content("t") == [(1, "w", "y")]
    assert mirrors.content("k") == [(1, "x", "y"), (1, "x", "y")]
    assert mirrors.operations("t").count("MERGE") == 1


def test_the_session_of_the_user_keeps_its_settings(mirrors: Mirrors) -> None:
    before = dict(mirrors.spark.conf.getAll)
    mirrors.write(Batch(T).add("u", T, 1, A), 0)
    assert dict(mirrors.spark.conf.getAll) == before


def test_check_says_when_the_folder_can_not_be_written(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, fits in ((tmp_path / "new" / "lake", True), (tmp_path / "file" / "lake", False)):
        sink = DeltaSink(parse_options(DeltaSink.options, {"path": str(path)}, owner="sink 'delta'"))
        if fits:
            sink.check()
            assert not (tmp_path / "new").exists()
        else:
            with pytest.raises(SinkError, match="can't be written"):
                sink.check()
