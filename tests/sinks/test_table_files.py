"""Rule: what a worker writes into a file of a lake's table is what the rows' texts say, or it writes none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.changes import Column, LogicalType, TableId, TableSchema
from headrace.changes.table_files import WrittenFile
from headrace.errors import SinkError
from headrace.sinks.lake.delta.facts import TableFacts
from headrace.sinks.lake.delta.table import DeltaFiles, PreparedDelta
from headrace.sinks.lake.iceberg.facts import number_of
from headrace.sinks.lake.iceberg.table import IcebergFiles, PreparedIceberg
from headrace.sinks.lake.partitions import IDENTITY, PLAIN
from headrace.sinks.lake.s3 import of_hadoop, storage_of
from headrace.sinks.lake.storage import Folder, Location
from headrace.sinks.lake.table_files import place_of

NAMED = (("id", "int32"), ("left_out", "string"), ("at", "date"))
COLUMNS = tuple(Column(name, n, LogicalType(kind)) for n, (name, kind) in enumerate(NAMED, 1))
SCHEMA = TableSchema(TableId("d", "s", "t"), COLUMNS, ("id",))


def files(folder: Path, mark: str = "") -> DeltaFiles:
    table = PreparedDelta(
        Folder(str(folder)), {"id": "int", "at": "date"}, "_position", mark, (), {}, {}, ("id", "_position")
    )
    # As it comes to a worker.
    return DeltaFiles.from_text(DeltaFiles({place_of(SCHEMA): table}).to_text())


def texts(ids: list[str | None], days: list[str | None]) -> list[pa.Array]:
    return [pa.array(column, pa.string()) for column in (ids, ["x"] * len(ids), days)]


@pytest.mark.parametrize("mark", ["", "_deleted"])
def test_rows_become_one_file_with_our_columns_and_what_the_log_says_of_it(tmp_path: Path, mark: str) -> None:
    file = files(tmp_path, mark).file(SCHEMA)
    assert file is not None
    assert file.write(texts(["7", None], ["2024-02-29", "0044-03-15 BC"]), "c/1/0")
    assert file.write(texts(["-1"], [None]), "c/1/0")
    written = WrittenFile.from_text(file.close().to_text())
    action = json.loads(written.action)[0]["add"]
    rows = pq.read_table(tmp_path / action["path"])
    assert rows.column_names == ["id", "at", "_position", *([mark] if mark else [])]
    assert rows["id"].to_pylist() == [7, None, -1]
    assert rows["at"].cast(pa.int32()).to_pylist() == [19782, -735160, None]
    assert rows["_position"].to_pylist() == ["c/1/0"] * 3
    if mark:
        assert rows[mark].to_pylist() == [False] * 3
    assert (written.rows, written.attempt) == (3, file.attempt)
    assert json.loads(action["stats"])["minValues"] == {"id": -1, "_position": "c/1/0"}


def test_a_file_of_iceberg_has_the_numbers_of_its_columns_and_no_null_where_the_table_has_none(tmp_path: Path) -> None:
    columns, ids = {"id": "int", "at": "date"}, {"id": 1, "at": 7, "_position": 3}
    spec = json.dumps({"fields": [{"name": "p", "transform": "month", "source-id": 7, "field-id": 1000}]})
    parts = [("at", "month", 0)]
    table = PreparedIceberg(Folder(str(tmp_path)), columns, "_position", "", parts, ids, {}, ("id",), spec)
    made = IcebergFiles({place_of(SCHEMA): table})
    file = IcebergFiles.from_text(made.to_text()).file(SCHEMA)
    assert file is not None
    assert not file.write(texts(["7", None], [None, None]), "c/1/0")
    assert file.write(texts(["7"], ["1970-02-28"]), "c/1/0")
    (action,) = json.loads(file.close().action)
    assert (action["partition"], Path(action["path"]).parent) == ('{"1000":1}', Path("at=1"))
    found = pq.ParquetFile(tmp_path / action["path"])
    assert {field.name: (number_of(field), field.nullable) for field in found.schema_arrow} == {
        "id": (1, False),
        "at": (7, True),
        "_position": (3, True),
    }
    assert action["size"] == (tmp_path / action["path"]).stat().st_size


def test_rows_with_a_value_that_is_none_of_its_type_are_not_taken_and_others_are(tmp_path: Path) -> None:
    file = files(tmp_path).file(SCHEMA)
    assert file is not None
    assert not file.write(texts(["1", "2"], ["2024-01-01", "infinity"]), "c/1/0")
    assert not file.write(texts(["2147483648"], ["2024-01-01"]), "c/1/0")
    assert file.write(texts(["3"], ["2024-01-01"]), "c/1/0")
    assert file.close().rows == 1
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path)["id"].to_pylist() == [3]


def test_no_row_no_file_and_no_file_of_an_attempt_that_ends_before_it_is_closed(tmp_path: Path) -> None:
    empty, ended = (files(tmp_path).file(SCHEMA) for _ in range(2))
    assert empty is not None and ended is not None
    assert empty.close() == WrittenFile(0, empty.attempt)
    ended.write(texts([str(n) for n in range(250_000)], [None] * 250_000), "c/1/0")
    assert list(tmp_path.iterdir())
    ended.discard()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_file_is_a_sentence(tmp_path: Path) -> None:
    file = files(tmp_path / "gone").file(SCHEMA)
    assert file is not None
    file.write(texts(["1"], [None]), "c/1/0")
    with pytest.raises(SinkError, match=r"Rows can.t be written into the folder .*gone"):
        file.close()


def test_attempts_of_one_task_have_files_and_names_of_their_own(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        file = files(tmp_path).file(SCHEMA)
        assert file is not None
        file.write(texts(["1"], [None]), "c/1/0")
        found.append(file.close())
    assert len({one.attempt for one in found}) == 2
    assert len({json.loads(one.action)[0]["add"]["path"] for one in found}) == 2


def test_rows_of_several_partitions_become_a_file_of_each_without_the_column_that_the_log_has(tmp_path: Path) -> None:
    table = PreparedDelta(
        Folder(str(tmp_path)), {"id": "int", "at": "date"}, "_position", "", [("at", "plain", 0)], {}, {}, ("id",)
    )
    made = DeltaFiles.from_text(DeltaFiles({place_of(SCHEMA): table}).to_text())
    file = made.file(SCHEMA)
    assert file is not None
    assert file.write(texts(["1", "2", "3"], ["2024-02-29", None, "2024-02-29"]), "c/1/0")
    assert file.write(texts(["4"], ["0001-01-01"]), "c/2/0")
    written = file.close()
    found = {}
    for action in json.loads(written.action):
        rows = pq.ParquetFile(tmp_path / action["add"]["path"]).read()
        assert rows.column_names == ["id", "_position"]
        found[action["add"]["partitionValues"]["at"]] = rows["id"].to_pylist()
    assert (written.rows, found) == (4, {"2024-02-29": [1, 3], None: [2], "0001-01-01": [4]})
    # Not more than may be open at once.
    file = made.file(SCHEMA)
    assert file is not None
    days = [f"2024-{month:02}-{day:02}" for month in range(1, 5) for day in range(1, 28)]
    assert not file.write(texts(["1"] * len(days), days), "c/1/0")
    assert file.write(texts(["1"] * 100, days[:100]), "c/1/0")
    assert not file.write(texts(["1"], days[100:101]), "c/1/0")
    file.discard()
    assert file.close().rows == 0


@pytest.mark.parametrize(("kind", "taken"), [(PLAIN, False), (IDENTITY, True)])
def test_an_empty_text_by_which_delta_would_have_a_partition_is_left_to_spark(
    tmp_path: Path, kind: str, taken: bool
) -> None:
    columns = (Column("a", 1, LogicalType("string")),)
    schema = TableSchema(TableId("d", "s", "t"), columns)
    prepared = PreparedDelta(Folder(str(tmp_path)), {"a": "string"}, "_position", "", [("a", kind, 0)], {}, {}, ())
    file = DeltaFiles({place_of(schema): prepared}).file(schema)
    assert file is not None
    assert file.write([pa.array(["x", None])], "c/1/0")
    assert file.write([pa.array(["", "x"])], "c/1/1") is taken


def test_a_structure_that_the_target_was_not_prepared_for_is_not_written(tmp_path: Path) -> None:
    other = TableSchema(SCHEMA.id, SCHEMA.columns[:2], ("id",))
    assert files(tmp_path).file(other) is None


FIELD = {"name": "id", "type": "integer", "nullable": True, "metadata": {}}
REFUSED = (
    ({}, {}, ""),
    ({"partitionColumns": ["id"]}, {}, ""),
    ({"partitionColumns": ["id"], "fields": [{**FIELD, "type": "double"}]}, {}, "it has partitions by column 'id'"),
    ({"configuration": {"delta.columnMapping.mode": "id"}}, {}, "its column mapping goes by numbers"),
    ({"configuration": {"delta.constraints.c": "id > 0"}}, {}, "it has constraints"),
    ({"configuration": {"delta.enableChangeDataFeed": "true"}}, {}, "it has a change data feed"),
    ({"configuration": {"delta.enableRowTracking": "true"}}, {}, "it has a change data feed, row tracking"),
    ({"configuration": {"delta.universalFormat.enabledFormats": "iceberg"}}, {}, "it is an Iceberg table too"),
    ({"fields": [{**FIELD, "nullable": False}]}, {}, "it has constraints"),
    ({"fields": [{**FIELD, "metadata": {"delta.generationExpression": "1"}}]}, {}, "computed columns"),
    ({"fields": [{**FIELD, "metadata": {"delta.identity.start": 1}}]}, {}, "computed columns"),
    ({"fields": [{**FIELD, "type": "variant"}]}, {}, "its column id is variant"),
    ({}, {"writerFeatures": ["icebergCompatV2"]}, "another feature"),
    ({"location": "s3a://lake/t"}, {}, "no login is set for its bucket"),
)


@pytest.mark.parametrize("said, needs, reason", REFUSED)
def test_a_table_whose_features_our_files_would_not_honour_takes_none(
    tmp_path: Path, said: dict[str, object], needs: dict[str, object], reason: str
) -> None:
    fields = said.get("fields", [FIELD])
    metadata = {"id": "i", "schemaString": json.dumps({"fields": fields}), **said}
    protocol = {"minWriterVersion": 7, "writerFeatures": ["deletionVectors", "appendOnly", "v2Checkpoint"], **needs}
    location = str(said.get("location", tmp_path.as_uri()))
    storage = storage_of(Location.of_uri(location), lambda at, bucket: of_hadoop({}.get, at.scheme, bucket))
    facts = TableFacts.of(json.dumps({"metaData": metadata}), json.dumps({"protocol": protocol}), location, storage)
    assert (reason in facts.no_files) if reason else facts.no_files == ""
