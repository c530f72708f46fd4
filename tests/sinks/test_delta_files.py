"""Files that pyarrow wrote are part of a Delta table: every reader finds in them what was written, skipping or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from headrace.changes.typed import literal
from headrace.sinks.lake.data_files import DataFile, arrow_type, write_data_file
from headrace.sinks.lake.delta.actions import Action, added, indexed_columns, marked, removed, statistics
from headrace.sinks.lake.delta.deletion_vectors import write_vectors
from headrace.sinks.lake.delta.log import BatchMark
from headrace.sinks.lake.delta.table import DeltaTable
from headrace.sinks.lake.partitions import UNPARTITIONED
from headrace.sinks.lake.storage import Folder

LAST = "\U0010ffff"
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-(2**15), 2**15 - 1],
    "int": [-(2**31), 0, 2**31 - 1],
    "bigint": [-(2**63), 2**53 + 1, 2**63 - 1],
    "float": [-0.0, 0.0, 3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612],
    "double": [-0.0, 0.0, 1.7976931348623157e308, 5e-324, 0.1, -1e22],
    "double nan": [1.5, float("nan")],
    "double inf": [float("-inf"), 0.0, float("inf")],
    "decimal(9,2)": [Decimal("-9999999.99"), Decimal("12.50")],
    "decimal(18,4)": [Decimal("-99999999999999.9999"), Decimal("0.0001")],
    "decimal(38,0)": [Decimal("-" + "9" * 38), Decimal("9" * 38)],
    "decimal(38,38)": [Decimal("0." + "0" * 37 + "1"), Decimal("-0." + "9" * 38)],
    "string": ["", "a" * 40, "z" * 32 + "a", "z" * 32 + LAST, '"quoted"\n\\', "\U0001f600", "\uffff"],
    "binary": [b"", b"\x00\xff"],
    "date": [-719162, 0, 2932896],
    "timestamp": [-62135596800000000, -1, 1, 253402300799999999],
    "timestamp_ntz": [-62135596800000000, -1, 1, 253402300799999999],
}
COLUMNS = {f"c{n}": name.split(" ")[0] for n, name in enumerate(VALUES)}


def cell(kind: str, value: Any) -> pa.Scalar:
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return pa.scalar(value, pa.int32() if kind == "date" else pa.int64()).cast(arrow_type(kind))
    return pa.scalar(value, arrow_type(kind))


@pytest.fixture(scope="module")
def table(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """One file for each value, so that a filter skips all others."""
    folder = tmp_path_factory.mktemp("lake") / "t"
    ddl = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    spark.sql(
        f"create table delta.`{folder}` (row int, {ddl}) using delta "
        "tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    mirror = DeltaTable(spark, str(folder))
    lines, number = [], 0
    for name, values in zip(COLUMNS, VALUES.values(), strict=True):
        for value in values:
            columns = {c: pa.nulls(1, arrow_type(kind)) for c, kind in COLUMNS.items()}
            columns[name] = columns[name].fill_null(cell(COLUMNS[name], value))
            rows = pa.table({"row": pa.array([number], pa.int32()), **columns})
            file = write_data_file(Folder(str(folder)), rows)
            lines.append(_added(file, rows, indexed_columns(rows.column_names, {})))
            number += 1
    log = mirror._log
    assert log is not None
    with log.transaction() as commit:
        assert commit.commit(commit.described(lines), BatchMark("headrace", 7, 7)) == 1
    return mirror


def cells() -> list[tuple[str, str, Any]]:
    return [
        (name, title, value) for name, (title, values) in zip(COLUMNS, VALUES.items(), strict=True) for value in values
    ]


def test_every_value_is_read_as_it_was_written(spark: Any, table: DeltaTable) -> None:
    found = spark.read.format("delta").load(table.location).orderBy("row").toArrow()
    other = pa.table(
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(table.location))
        .execute("select * from t order by row")
        .read_all()
    )
    for number, (name, title, value) in enumerate(cells()):
        expected = cell(COLUMNS[name], value)
        for rows in (found, other):
            kept = rows[name][number]
            assert kept.cast(expected.type) == expected or title == "double nan", (title, value)
            assert sum(rows[c][number].is_valid for c in COLUMNS) == 1


def condition(name: str, value: Any) -> str:
    """SQL that a column has a value."""
    constants = {
        "date": "date_from_unix_date({})",
        "timestamp": "timestamp_micros({})",
        "timestamp_ntz": "timestampadd(microsecond, {}, timestamp_ntz'1970-01-01 00:00:00')",
    }
    constant = constants.get(COLUMNS[name], f"cast({{}} as {COLUMNS[name]})")
    number = isinstance(value, int) and not isinstance(value, bool)
    return f"{name} = " + constant.format(value if number else literal(f"{value}"))


def test_a_filter_at_a_value_finds_its_file(spark: Any, table: DeltaTable) -> None:
    rows = spark.read.format("delta").load(table.location)
    # A query has one value of each column: a file has values of one, so that no other condition finds it. Columns whose
    # files Delta never skips would keep it from skipping any.
    wanted: dict[int, dict[int, str]] = {}
    seen = Counter[str]()
    for number, (name, _, value) in enumerate(cells()):
        if COLUMNS[name] not in ("binary", "boolean"):
            wanted.setdefault(seen[name], {})[number] = condition(name, value)
            seen[name] += 1
    for conditions in wanted.values():
        found = {line["row"] for line in rows.where(" or ".join(conditions.values())).select("row").collect()}
        lost = set(conditions) - found
        assert not lost, [conditions[number] for number in lost]


def test_marked_rows_are_gone_for_every_reader_and_the_batch_is_known(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    spark.sql(
        f"create table delta.`{folder}` (id bigint) using delta tblproperties ('delta.enableDeletionVectors' = 'true')"
    )
    rows = pa.table({"id": pa.array(range(100_000), pa.int64())})
    log = DeltaTable(spark, str(folder))._log
    assert log is not None
    file = write_data_file(Folder(str(folder)), rows)
    entry = _added(file, rows, ("id",))
    with log.transaction() as commit:
        commit.commit(commit.described([entry]), BatchMark("headrace", 1, 1))
    vectors = [np.arange(0, 100_000, 2, dtype=np.int64), np.arange(0, 99_999, dtype=np.int64)]
    for number, gone in enumerate(vectors):
        (vector,) = write_vectors(Folder(str(folder)), [gone])
        lines = [removed(entry["add"], 1), entry := marked(entry["add"], vector, file.rows)]
        with log.transaction() as commit:
            assert commit.commit(commit.described(lines), BatchMark("headrace", 2 + number, 2)) == 2 + number
        left = sorted(set(range(100_000)) - set(gone.tolist()))
        found = spark.read.format("delta").load(str(folder))
        assert sorted(row["id"] for row in found.collect()) == left
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(folder)))
        assert pa.table(query.execute("select count(*) as n from t").read_all())["n"].to_pylist() == [len(left)]
    assert log.transaction_version("headrace") == 3


def _added(file: DataFile, rows: pa.Table, indexed: Sequence[str]) -> Action:
    return added(file, statistics(file, rows.schema, indexed, {}), UNPARTITIONED, {}, {})
