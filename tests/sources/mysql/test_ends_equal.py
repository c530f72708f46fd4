"""Rule: rows that went by a statement, of which the log has no change, leave copies when the table was read again."""

from __future__ import annotations

import pytest
from tests.support.captured_mysql import CapturedMysql

from headrace.testing.captured_database import replay
from headrace_emulators.mysql.server import MySqlDatabase

STATEMENTS = {
    "hist": ["ALTER TABLE hist DROP PARTITION p1"],
    "subs": ["ALTER IGNORE TABLE subs ADD UNIQUE (addr)"],
    "mail": [
        "CREATE TABLE _mail_gho LIKE mail",
        "ALTER TABLE _mail_gho ADD UNIQUE (addr)",
        "INSERT IGNORE INTO _mail_gho SELECT * FROM mail",
        "RENAME TABLE mail TO _mail_del, _mail_gho TO mail",
    ],
}


@pytest.mark.parametrize("waiting", [False, True], ids=["between batches", "while changes wait"])
def test_copies_are_as_the_server_where_a_statement_took_rows(
    mariadb_database: MySqlDatabase, *, waiting: bool
) -> None:
    database = CapturedMysql(mariadb_database)
    columns = "id int NOT NULL PRIMARY KEY, addr varchar(20)"
    rows = [(1, "a"), (2, "a"), (3, "b"), (12, "c"), (13, "c")]
    for name in ("subs", "mail"):
        database.create(name, columns, rows)
    parts = "PARTITION p1 VALUES LESS THAN (10), PARTITION p2 VALUES LESS THAN (20)"
    database.execute(f"CREATE TABLE hist ({columns}) PARTITION BY RANGE (id) ({parts})")
    database.execute("INSERT INTO hist VALUES (1, 'a'), (2, 'b'), (12, 'c')")
    run = database.run(tables=",".join(f"{database.schema}.{name}" for name in STATEMENTS))
    seen = run.all()
    for name, statements in STATEMENTS.items():
        if waiting:
            database.execute(f"UPDATE {name} SET addr = 'd' WHERE id = 12")
        for statement in statements:
            database.execute(statement)
        database.execute(f"UPDATE {name} SET addr = 'e' WHERE id = 12")
    later = (run.restarted() if waiting else run).all()
    held = replay(seen + later)
    for name in STATEMENTS:
        there = [tuple(map(str, row)) for row in mariadb_database.execute(f"SELECT id, addr FROM {name} ORDER BY id")]
        copies = [(row["id"], row["addr"]) for (table, _), row in held.items() if table == name]
        assert sorted(copies, key=lambda row: int(row[0])) == there
    assert len(held) < 13, "rows went"
    assert run.all() == []
