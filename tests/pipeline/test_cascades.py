"""Rule: what foreign keys delete or change without a change in the log reaches mirrors and messages all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from tests.support.mysql import mysql_like, needs_mysql

import headrace
from headrace.changes import TableId
from headrace.changes.foreign_key import Cascade, ForeignKey
from headrace.errors import NewerRelease
from headrace.observe.checkpoint import CASCADES
from headrace.pipeline.added_rows import KeptRows
from headrace.pipeline.cascades import Cascades
from headrace.pipeline.check import Level, check_file
from headrace.pipeline.checkpoint import Checkpoint
from headrace.sources.databases import Databases, Offsets
from headrace.sources.offset import Offset
from headrace.testing.faults import InjectedFault
from headrace.testing.waiting import PATIENCE
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlDatabase

TABLES = {
    "customers": "id INT PRIMARY KEY, code VARCHAR(10) UNIQUE, name VARCHAR(20)",
    "orders": "id INT PRIMARY KEY, customer INT, total DECIMAL(10,2), at DATETIME(3), spent TIME(2), CONSTRAINT fk_o "
    "FOREIGN KEY (customer) REFERENCES customers (id) ON DELETE CASCADE ON UPDATE CASCADE",
    "items": "o INT, line INT, note VARBINARY(9), PRIMARY KEY (o, line), CONSTRAINT fk_i FOREIGN KEY (o) REFERENCES "
    "orders (id) ON DELETE CASCADE",
    "notes": "id INT PRIMARY KEY, `code ``1` VARCHAR(10), CONSTRAINT `fk n` FOREIGN KEY (`code ``1`) REFERENCES "
    "customers (code) ON DELETE SET NULL ON UPDATE CASCADE",
    "tree": "id INT PRIMARY KEY, up INT, CONSTRAINT fk_t FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE",
    "loose": "id INT PRIMARY KEY, customer INT, CONSTRAINT fk_l FOREIGN KEY (customer) REFERENCES customers (id) ON "
    "DELETE CASCADE",
    "regions": "id INT PRIMARY KEY",
    "shops": "id INT PRIMARY KEY, region INT, CONSTRAINT fk_s FOREIGN KEY (region) REFERENCES regions (id) ON DELETE "
    "CASCADE",
}
CAPTURED = [name for name in TABLES if name != "regions"]
ROWS = """
INSERT INTO customers VALUES (1, 'Ab', 'a'), (2, 'b', 'b'), (3, 'c', 'c'), (4, 'd', 'd'), (5, 'e', 'e');
INSERT INTO orders VALUES (10, 1, 1.50, '2024-01-02 03:04:05.600', '01:02:03.40'), (11, 1, 2.00, NULL, NULL),
  (20, 2, 3, NULL, NULL), (40, 4, 4, NULL, NULL), (50, 5, 5, NULL, NULL), (99, NULL, 9, NULL, NULL);
INSERT INTO items VALUES (10, 1, 'x'), (10, 2, NULL), (20, 1, 'y'), (40, 1, 'z'), (50, 1, 'u');
INSERT INTO notes VALUES (1, 'aB'), (2, 'b'), (3, 'c'), (4, NULL);
INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, 3), (5, NULL), (6, 5);
INSERT INTO loose VALUES (1, 1), (2, 5), (3, NULL);
INSERT INTO regions VALUES (1); INSERT INTO shops VALUES (1, 1);
"""
CHANGES = """
DELETE FROM customers WHERE id = 1;
UPDATE customers SET id = 22 WHERE id = 2;
UPDATE customers SET code = 'C' WHERE id = 3;
BEGIN; INSERT INTO orders VALUES (33, 3, 3, NULL, NULL); UPDATE orders SET customer = 3 WHERE id = 20;
INSERT INTO items VALUES (33, 1, 'n'); DELETE FROM customers WHERE id IN (3, 22); COMMIT;
SET foreign_key_checks = 0; DELETE FROM customers WHERE id = 4; SET foreign_key_checks = 1;
ALTER TABLE loose DROP FOREIGN KEY fk_l;
BEGIN; DELETE FROM customers WHERE id = 5; INSERT INTO customers VALUES (5, 'e', 'again');
INSERT INTO orders VALUES (50, 5, 6, NULL, NULL); COMMIT;
DELETE FROM tree WHERE id = 1;
"""
DELETED = {
    "orders": ["10", "11", "20", "33", "50"],
    "items": ["10 1", "10 2", "20 1", "33 1", "50 1"],
    "loose": ["1"],
    "tree": ["1", "2", "3", "4"],
}
CHANGED = ["1 None", "2 None", "3 C", "3 None"]


SOAK = pytest.mark.soak


@pytest.fixture(params=[MARIADB, pytest.param(MYSQL, marks=SOAK), pytest.param("native", marks=SOAK)])
def database(request: pytest.FixtureRequest) -> Iterator[MySqlDatabase]:
    """One whose server logs what foreign keys do (MySQL), and two that do not."""
    if request.param != "native":
        made = request.getfixturevalue(f"{request.param}_database")
        assert isinstance(made, MySqlDatabase)
        yield made
        return
    if needs_mysql.args[0]:
        pytest.skip(needs_mysql.kwargs["reason"])
    with mysql_like(MYSQL, innodb_native_foreign_keys="ON") as server:
        yield server.new_database()


def write(folder: Path, database: MySqlDatabase, sinks: list[dict[str, Any]], **options: Any) -> Path:
    tables = [f"{database.name}.{name}" for name in CAPTURED]
    document = {
        "pipeline": {"name": "shop", "checkpoint": "./checkpoint"},
        "source": {"type": "mysql", **database.options, "tables": tables, **options},
        "sinks": sinks,
    }
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(document))
    return folder / "pipeline.yaml"


def run(spark: Any, file: Path) -> None:
    assert headrace.load_pipeline(file).start(spark, once=True).wait(PATIENCE)


def fill(database: MySqlDatabase) -> None:
    for name, columns in TABLES.items():
        database.run(f"CREATE TABLE {name} ({columns})")
    database.run(ROWS)


def events(folder: Path) -> list[dict[str, Any]]:
    found = []
    for part in folder.rglob("part-*"):
        for line in part.read_text().splitlines():
            message = json.loads(line)
            if message["value"]:
                found.append(json.loads(message["value"]))
    return [event for event in found if event.get("op") in ("u", "d")]


@pytest.mark.system
def test_mirrors_and_messages_have_what_foreign_keys_do(
    spark: Any, tmp_path: Path, database: MySqlDatabase, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    fill(database)
    messages = {"type": "files", "path": "./messages", "format": {"type": "debezium_json", "topic.prefix": "s"}}
    file = write(tmp_path / "p", database, [{"type": "delta", "path": "./lake"}, messages])
    logs = ("innodb_native_foreign_keys", "OFF") in database.execute("SHOW VARIABLES LIKE 'innodb_native%'")
    run(spark, file)
    database.run(CHANGES)
    monkeypatch.setenv("HEADRACE_FAULT_DIR", str(tmp_path))
    # The mirror has the batch, and would say something else to who looks into it once more.
    monkeypatch.setenv("HEADRACE_FAULTPOINTS", "pipeline.sink.1.written=raise")
    with pytest.raises(InjectedFault):
        run(spark, file)
    monkeypatch.delenv("HEADRACE_FAULTPOINTS")
    kept = tmp_path / "p" / "checkpoint" / CASCADES
    assert kept.exists() is not logs
    run(spark, file)
    for name in CAPTURED:
        columns = [column for column, *_ in database.execute(f"SHOW COLUMNS FROM {name}")]
        shown = ", ".join(f"CAST(`{column.replace('`', '``')}` AS CHAR)" for column in columns)
        found = spark.read.format("delta").load(str(tmp_path / "p" / "lake" / database.name / name))
        texts = ", ".join(
            f"cast(`{column.replace('`', '``')}` as string)"
            if column != "at"
            else "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSS')"
            for column in columns
        )
        rows = sorted(map(tuple, found.selectExpr(f"array({texts}) as x").toPandas()["x"]), key=repr)
        truth = sorted(database.execute(f"SELECT {shown} FROM {name}"), key=repr)
        assert rows == [tuple(None if v is None else str(v) for v in row) for row in truth], name
    deleted: dict[str, list[str]] = {}
    changed: list[str] = []
    for event in events(tmp_path / "p" / "messages"):
        name, before, after = event["source"]["table"], event["before"], event["after"]
        if event["op"] == "d" and name != "customers":
            key = [before["o"], before["line"]] if name == "items" else [before["id"]]
            deleted.setdefault(name, []).append(" ".join(map(str, key)))
        elif name == "notes":
            changed.append(f"{after['id']} {after['code `1']}")
        if name == "orders" and event["op"] == "d" and before["id"] == 10:
            assert (before["total"], before["spent"]) == ("AJY=", 3723400000)
    assert ({name: sorted(keys) for name, keys in deleted.items()}, sorted(changed)) == (DELETED, CHANGED)
    said = [record.message for record in caplog.records if "Foreign key" in record.message]
    assert len(said) == (0 if logs else 1)
    if not logs:
        assert "'fk_s'" in said[0] and "regions' is not captured" in said[0] and "repair reread" in said[0]


@pytest.mark.system
@pytest.mark.parametrize("kind", ["iceberg", "jdbc"])
def test_rows_are_found_in_each_kind_of_mirror(
    spark: Any, tmp_path: Path, mariadb_database: MySqlDatabase, kind: str
) -> None:
    fill(mariadb_database)
    server = mariadb_database.server
    mirror = server.new_database()
    url = f"jdbc:mariadb://{server.host}:{server.port}/{mirror.name}"
    given = {"warehouse": "./lake"} if kind == "iceberg" else {"url": url, **server.login, "table_name": "{table}"}
    file = write(tmp_path / "p", mariadb_database, [{"type": kind, **given}])
    run(spark, file)
    mariadb_database.run(CHANGES)
    run(spark, file)
    found = {one.table.name: getattr(one, "equal", False) for one in headrace.load_pipeline(file).verify(spark)}
    mirror.drop()
    # What refers to regions, which is not captured, is found nowhere.
    assert found == dict.fromkeys(CAPTURED, True)


def test_check_names_each_table_for_a_login_that_may_only_read(tmp_path: Path, mariadb_database: MySqlDatabase) -> None:
    database = mariadb_database
    fill(database)
    login = f"r{database.name}"[:30]
    database.run(f"CREATE USER '{login}'@'%' IDENTIFIED BY 'x'; GRANT SELECT ON {database.name}.* TO '{login}'@'%';")
    database.run(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{login}'@'%'")
    given = {"user": login, "password": "x"}
    messages = {"type": "files", "path": "./messages", "format": {"type": "debezium_json", "topic.prefix": "s"}}

    def said(sinks: list[dict[str, Any]], **options: Any) -> dict[str, tuple[str, bool]]:
        found = check_file(write(tmp_path / "p", database, sinks, **given, **options), Level.PLAN).findings
        return {
            one.subject.split(".")[1]: (one.sentence.partition(": ")[2], bool(one.remedy))
            for one in found
            if "Foreign key" in one.sentence
        }

    told = "these rows are looked up in sink 1 (delta) and given to all sinks."
    lost = "the sinks keep these rows as they were, because"
    mirrored = said([{"type": "delta", "path": "./lake"}, messages])
    assert mirrored == {
        **dict.fromkeys(["orders", "items", "notes", "tree", "loose"], (told, False)),
        "shops": (f"{lost} table '{database.name}.regions' is not captured.", True),
    }
    alone = said([messages])
    assert set(alone) == set(mirrored) and all(
        "no sink keeps tables" in text for text, _ in alone.values() if "regions" not in text
    )
    warned = said([{"type": "delta", "path": "./lake"}], on_cascade="warn")
    assert set(warned.values()) == {(f"{lost} 'on_cascade' is warn.", True)}
    database.run(
        "CREATE TABLE doubled (id INT PRIMARY KEY, customer INT, twice INT AS (customer * 2) VIRTUAL, CONSTRAINT fk_d "
        "FOREIGN KEY (customer) REFERENCES customers (id) ON DELETE SET NULL)"
    )
    tables = [f"{database.name}.{name}" for name in ("customers", "doubled")]
    stays = "Values that the server computes in them ('twice') stay until the row's next change."
    assert said([{"type": "delta", "path": "./lake"}], tables=tables) == {"doubled": (f"{told} {stays}", True)}


class Folder(Checkpoint):
    """A checkpoint of three batches, without Spark."""

    def __init__(self, folder: Path) -> None:
        self.location, self.path = str(folder), folder

    @property
    def local_folder(self) -> Path:
        return self.path

    def text(self, file: str) -> str | None:
        return (self.path / file).read_text() if (self.path / file).exists() else None

    def offsets_hash(self, batch: int) -> str:
        return f"hash {batch}"


def test_added_rows_are_kept_until_the_next_batch_begins(tmp_path: Path) -> None:
    lines = [{"op": "d", "position": "1/k00000001"}]
    kept = KeptRows(Folder(tmp_path))
    assert kept.of(1) is None
    kept.keep(1, lines)
    kept.keep(1, lines)
    assert kept.of(1) == KeptRows(Folder(tmp_path)).of(1) == lines
    assert KeptRows(Folder(tmp_path)).of(2) is None and not list(tmp_path.iterdir())
    kept.keep(2, [])
    assert kept.of(2) == []
    # The checkpoint was set back: the batch of that number is another one.
    (tmp_path / CASCADES).write_text((tmp_path / CASCADES).read_text().replace("hash 2", "hash 0"))
    assert KeptRows(Folder(tmp_path)).of(2) is None
    (tmp_path / CASCADES).write_text('{"version": 2}')
    with pytest.raises(NewerRelease, match=CASCADES):
        KeptRows(Folder(tmp_path)).of(2)


@pytest.mark.parametrize(
    ("table", "below"), [("a", "bcd"), ("b", "dac"), ("c", ""), ("d", "abc"), ("tree", ""), ("other", "")]
)
def test_the_tables_below_one_are_those_that_foreign_keys_change_with_it_directly_or_not(
    tmp_path: Path, table: str, below: str
) -> None:
    def key(child: str, parent: str) -> Cascade:
        tables = [TableId("shop", "", name) for name in (child, parent)]
        return Cascade(ForeignKey("fk", tables[0], ("p",), tables[1], ("id",), "cascade", "", ("",)))

    class Keys:
        def cascades(self, start: Offsets, end: Offsets) -> list[Cascade]:
            assert start == end == Offsets({"shop": Offset("mysql", "05")})
            return [key("b", "a"), key("c", "a"), key("d", "b"), key("a", "d"), key("tree", "tree")]

    class Ends(Folder):
        def offset(self, batch: int) -> str | None:
            assert batch == 3
            return Offsets({"shop": Offset("mysql", "05")}).to_text()

    found = Cascades(cast(Databases, Keys()), [], Ends(tmp_path)).below(TableId("shop", "", table), 3)
    assert "".join(id.name for id in found) == below
