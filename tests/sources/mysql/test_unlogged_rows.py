"""What a statement does to all rows of a table at once, and the server logs no row of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from tests.support.altered_mysql import held
from tests.support.captured_mysql import CapturedMysql
from tests.support.evolving_mirror import EvolvingMirror

from headrace.testing.sources import Row
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlServer


class Case(NamedTuple):
    """A table, what is done to it, and whether all of its rows are read again then.

    Args:
        columns: beside the key.
        rows: values of these columns.
        statements: with `{t}` for the table.
        read_again: whether nothing proves them harmless.
        only: the kind of server that has it; empty for both.
    """

    columns: str
    rows: Sequence[str]
    statements: Sequence[str]
    read_again: bool = True
    only: str = ""


_V, _ONE_TWO = "v INT", ("1", "2")
_BY_ID = "PARTITION BY RANGE (id) (PARTITION p1 VALUES LESS THAN (2), PARTITION p2 VALUES LESS THAN MAXVALUE)"
CASES = {
    # Columns with values.
    "a_default": Case("v VARCHAR(20)", ["'a'", "'b'"], ["ALTER TABLE {t} ADD stock INT NOT NULL DEFAULT 5"]),
    "an_implicit_default": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ADD stock INT NOT NULL"]),
    "a_default_of_a_time": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ADD at DATETIME DEFAULT '2024-01-02 03:04:05'"]),
    "an_expression": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ADD tag CHAR(36) NOT NULL DEFAULT (UUID())"], only=MARIADB),
    "a_generated_column": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ADD twice INT AS (id * 2) STORED"]),
    "another_expression": Case(
        "v INT, w INT AS (v * 2) STORED", ["1, DEFAULT"], ["ALTER TABLE {t} MODIFY w INT AS (v * 3) STORED"]
    ),
    "numbered": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ADD n INT AUTO_INCREMENT UNIQUE"]),
    "nothing_to_fill": Case(
        _V, _ONE_TWO, ["ALTER TABLE {t} ADD w INT, ADD INDEX (w), COMMENT 'x', ALTER v SET DEFAULT 3"], False
    ),
    # Other values.
    "cut": Case(
        "p DECIMAL(10,4), note VARCHAR(50), big BIGINT",
        ["1.2345, 'a long note', 5000000000", "2, NULL, 7"],
        ["ALTER TABLE {t} MODIFY note VARCHAR(4) NOT NULL, MODIFY big INT", "ALTER TABLE {t} MODIFY p DECIMAL(10,2)"],
    ),
    "label_less": Case("e ENUM('x','y','z')", ["'x'", "'z'"], ["ALTER TABLE {t} MODIFY e ENUM('x','y')"]),
    "label_more": Case("e ENUM('x','y')", ["'x'", "'y'"], ["ALTER TABLE {t} MODIFY e ENUM('x','y','z')"], False),
    "labels_reordered": Case(
        "e ENUM('x','y')",
        ["'x'", "'y'"],
        ["UPDATE {t} SET e = 'x' WHERE id = 2", "ALTER TABLE {t} MODIFY e ENUM('y','x')"],
    ),
    "fraction": Case("at DATETIME(6)", ["'2024-01-01 00:00:00.987654'"], ["ALTER TABLE {t} MODIFY at DATETIME(1)"]),
    "charset": Case(
        "v VARCHAR(9) CHARACTER SET utf8mb4", ["'żółw'"], ["ALTER TABLE {t} CONVERT TO CHARACTER SET latin1"]
    ),
    "wider": Case(
        "n INT, v VARCHAR(5), d DECIMAL(5,2)",
        ["1, 'a', 1.25"],
        ["ALTER TABLE {t} MODIFY n BIGINT, MODIFY v VARCHAR(50), MODIFY d DECIMAL(9,2)"],
        False,
    ),
    "engine": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ENGINE=MyISAM"]),
    "same_engine": Case(_V, _ONE_TWO, ["ALTER TABLE {t} ENGINE=InnoDB, ALGORITHM=COPY"], False),
    # Names.
    "added_again": Case("c INT, d INT", ["10, 100", "20, 200"], ["ALTER TABLE {t} DROP c, ADD c INT"]),
    "added_again_later": Case(
        "c INT, d INT", ["10, 100", "20, 200"], ["ALTER TABLE {t} DROP c", "ALTER TABLE {t} ADD c INT"]
    ),
    "name_taken": Case("c INT, d INT", ["10, 100"], ["ALTER TABLE {t} CHANGE d e INT, ADD d INT DEFAULT 7"]),
    "names_swapped": Case("a INT, b INT", ["1, 2"], ["ALTER TABLE {t} CHANGE a b INT, CHANGE b a INT"]),
    "renamed": Case("a INT, b INT", ["1, 2"], ["ALTER TABLE {t} RENAME COLUMN a TO c", "UPDATE {t} SET c = 5"], False),
    # Rows of one type in front of statements that move their columns, and between them.
    "moved": Case(
        "a INT, b INT", ["1, 100"], ["UPDATE {t} SET a = 2, b = 200", "ALTER TABLE {t} MODIFY a INT AFTER b"], False
    ),
    "moved_twice": Case(
        "a INT, b INT",
        ["1, 100"],
        [
            "UPDATE {t} SET a = 2, b = 200",
            "ALTER TABLE {t} MODIFY a INT AFTER b",
            "UPDATE {t} SET a = 3, b = 300",
            "ALTER TABLE {t} ADD c INT FIRST",
            "UPDATE {t} SET a = 4, c = 5",
            "ALTER TABLE {t} DROP c, MODIFY b INT FIRST",
            "INSERT INTO {t} (id, a, b) VALUES (9, 8, 7)",
        ],
        False,
    ),
    "of_types_that_the_log_lacks": Case(
        "u UUID, ip INET6",
        ["UUID(), '::1'"],
        [
            "UPDATE {t} SET u = UUID()",
            "ALTER TABLE {t} RENAME COLUMN u TO uid",
            "UPDATE {t} SET uid = UUID(), ip = '::2'",
            "ALTER TABLE {t} RENAME COLUMN uid TO uuid, RENAME COLUMN ip TO a",
            "UPDATE {t} SET uuid = UUID(), a = '::3'",
        ],
        False,
        MARIADB,
    ),
    "bytes_of_texts": Case(
        "u UUID, v INT",
        ["UUID(), 1"],
        [
            "UPDATE {t} SET u = UUID()",
            "ALTER TABLE {t} MODIFY u BINARY(16)",
            "UPDATE {t} SET u = 0x30303030303030303030303030303030",
        ],
        only=MARIADB,
    ),
    # Rows that go, or that are others.
    "partition_dropped": Case(_V, _ONE_TWO, [f"ALTER TABLE {{t}} {_BY_ID}", "ALTER TABLE {t} DROP PARTITION p1"]),
    "partition_emptied": Case(_V, _ONE_TWO, [f"ALTER TABLE {{t}} {_BY_ID}", "ALTER TABLE {t} TRUNCATE PARTITION p1"]),
    "partition_exchanged": Case(
        _V,
        _ONE_TWO,
        [
            "CREATE TABLE {t}_other LIKE {t}",
            "INSERT INTO {t}_other (id, v) VALUES (1, 50)",
            f"ALTER TABLE {{t}} {_BY_ID}",
            "ALTER TABLE {t} EXCHANGE PARTITION p1 WITH TABLE {t}_other",
        ],
    ),
    "partitioned": Case(_V, _ONE_TWO, ["ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 3"], False),
    "unique_rows": Case(
        "addr VARCHAR(9)", ["'a'", "'a'", "'b'"], ["ALTER IGNORE TABLE {t} ADD UNIQUE (addr)"], only=MARIADB
    ),
    # What tools that change a table online do.
    "swap_with_a_default": Case(
        _V,
        _ONE_TWO,
        [
            "CREATE TABLE _{t}_gho LIKE {t}",
            "ALTER TABLE _{t}_gho ADD kind VARCHAR(10) NOT NULL DEFAULT 'std'",
            "INSERT INTO _{t}_gho (id, v) SELECT id, v FROM {t}",
            "RENAME TABLE {t} TO _{t}_del, _{t}_gho TO {t}",
            "INSERT INTO {t} (id, v) VALUES (7, 8)",
        ],
    ),
    "swap_with_a_unique_key": Case(
        "addr VARCHAR(9)",
        ["'a'", "'a'"],
        [
            "CREATE TABLE _{t}_new LIKE {t}",
            "ALTER TABLE _{t}_new ADD UNIQUE (addr)",
            "INSERT IGNORE INTO _{t}_new SELECT * FROM {t}",
            "RENAME TABLE {t} TO _{t}_old, _{t}_new TO {t}",
        ],
    ),
    "swap_of_equals": Case(
        _V,
        _ONE_TWO,
        [
            "CREATE TABLE _{t}_new LIKE {t}",
            "INSERT INTO _{t}_new SELECT * FROM {t}",
            "RENAME TABLE {t} TO _{t}_old, _{t}_new TO {t}",
        ],
        False,
    ),
}


@pytest.fixture
def database(request: pytest.FixtureRequest, kind: str, metadata: str) -> Iterator[CapturedMysql]:
    server: MySqlServer = request.getfixturevalue(f"{kind}_server")
    # What does not fit is cut.
    with server.changed(binlog_row_metadata=metadata, sql_mode=""):
        database = server.new_database()
        yield CapturedMysql(database)
        database.drop()


def _read_again(rows: Sequence[Row]) -> set[str]:
    return {row["table"]["name"] for row in rows if row["op"] == "r"}


@pytest.mark.parametrize(
    ("kind", "metadata", "waiting"),
    [
        pytest.param(MARIADB, "NO_LOG", False, id="between batches", marks=pytest.mark.system),
        pytest.param(MARIADB, "NO_LOG", True, id="while changes wait", marks=pytest.mark.system),
        pytest.param(MARIADB, "FULL", True, id="while changes wait that the log describes"),
        pytest.param(MYSQL, "MINIMAL", True, id="on MySQL while changes wait", marks=pytest.mark.soak),
    ],
)
def test_copies_are_as_the_server_whatever_a_statement_does_to_all_rows(
    database: CapturedMysql, metadata: str, *, waiting: bool
) -> None:
    cases = {name: case for name, case in CASES.items() if case.only in ("", database.source)}
    if metadata == "FULL":
        # It matters for rows alone.
        cases = {name: case for name, case in cases.items() if any(sql.startswith("UPDATE") for sql in case.statements)}
    mirror = EvolvingMirror(dict.fromkeys(cases, ("id",)))
    run = database.run(
        tables=",".join(f"{database.schema}.{name}" for name in cases), incremental_snapshot_chunk_size=2
    )
    later: list[Row] = []
    with database.database.connect() as session, session.cursor() as cursor:

        def execute(sql: str, name: str) -> None:
            cursor.execute(sql.replace("{t}", name))

        # Between batches a run holds no lock.
        cursor.execute("SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5")
        for name, case in cases.items():
            execute(f"CREATE TABLE {{t}} (id INT PRIMARY KEY, {case.columns})", name)
            for number, row in enumerate(case.rows, 1):
                execute(f"INSERT INTO {{t}} VALUES ({number}, {row})", name)
        mirror.replay(run.all())
        if waiting:
            for name, case in cases.items():
                for sql in ("INSERT INTO {t} (id) VALUES (77)", *case.statements, "INSERT INTO {t} (id) VALUES (78)"):
                    execute(sql, name)
            run.restarted()
        for half in (0, 1) if not waiting else ():
            for name, case in cases.items():
                middle = (len(case.statements) + 1) // 2
                for sql in case.statements[middle:] if half else case.statements[:middle]:
                    execute(sql, name)
            later += run.all()
        later += run.all()
    mirror.replay(later)
    assert mirror.unequal(held(database.database, cases)) == {}
    assert _read_again(later) == {name for name, case in cases.items() if case.read_again}
    assert run.all() == []
