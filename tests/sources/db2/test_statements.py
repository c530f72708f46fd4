"""Rule: all SQL is in one module, names are quoted, and every statement is one that Db2's grammar (as far as it is
emulated) takes, on both platforms."""

from __future__ import annotations

import ast
import datetime as dt
from pathlib import Path

import pytest
from tests.support.captured_shop import Db2Database, closing
from tests.support.sqlserver_statements import _SQL, texts_of

from headrace.sources.db2.connection import Db2Connection
from headrace.sources.db2.dialect import Db2
from headrace.sources.db2.statements import LUW, ZOS, Statements, change_table, quote

FOLDER = Path(__file__).parents[3] / "src" / "headrace" / "sources" / "db2"
LSN, NOW = bytes(16), dt.datetime(2026, 1, 1, 2, 3, 4)
PARAMETERS = {
    "COLUMN_NAMES": ("SHOP", "T"),
    "INSTANCE_START": ('ASNCDC"."CDC_SHOP_T',),
    "NTH_COMMIT_AFTER": (5, LSN),
    "CHANGED_SINCE": (LSN,),
    "TRANSACTIONS_AFTER": (LSN,),
    "TRANSACTIONS_STRICTLY_BETWEEN": (LSN, LSN),
    "EVERY_NTH_COMMIT": (LSN, LSN, 3),
    "TRANSACTIONS_BEFORE": (3, LSN),
    "COMMIT_TIME": (LSN,),
    "FIRST_SINCE": (NOW,),
    "FIRST_REPEATED": (NOW, NOW, NOW, NOW),
    "FIRST_SETTLED": (LSN, NOW, NOW, NOW),
    "LAST_TRANSACTION": (LSN,),
    "FIRST_TRANSACTION_AFTER": (LSN,),
}


@pytest.fixture
def database(tmp_path):
    with closing(Db2Database(tmp_path / "server")) as made:
        made.create("t", "id int not null primary key, v varchar(5)", [(1, "a")])
        made.insert("t", 2, "b")
        made.capture()
        yield made


@pytest.mark.parametrize("platform", [LUW, ZOS])
def test_every_statement_is_taken(database, platform):
    statements = Statements(platform, "ASNCDC")
    texts = {
        name: text for name, text in vars(statements).items() if isinstance(text, str) and text.startswith("SELECT")
    }
    assert set(PARAMETERS) <= set(texts)
    settings = {**database.options}
    with Db2Connection("db2-emulator", settings, Db2(statements)) as connection:
        for name, text in texts.items():
            rows = connection.rows(text, PARAMETERS.get(name, ()))
            assert isinstance(rows, list), name
        for text in statements.ISOLATION.values():
            connection.run(text)
        for milliseconds in (-1, 0, 1500):
            connection.run(statements.lock_timeout(milliseconds))


@pytest.mark.parametrize("module", sorted(path.name for path in FOLDER.glob("*.py") if path.name != "statements.py"))
def test_no_other_module_holds_sql(module):
    tree = ast.parse((FOLDER / module).read_text("utf-8"))
    told = [f"{line}: {text}" for line, text in texts_of(tree) if _SQL.fullmatch(text) and text.rstrip()[-1:] != "."]
    assert told == []


@pytest.mark.parametrize("name", ["T", "a b", 'say "hi"', "select", "ä;--"])
def test_a_name_is_quoted_whatever_it_has(name):
    assert quote(name) == '"' + name.replace('"', '""') + '"'
    assert change_table(f'ASNCDC"."{name}') == f'"ASNCDC".{quote(name)}'


def test_a_table_of_any_name_is_just_a_table(database):
    for name in ("it's", "select", "a b", "ä"):
        database.execute(f'CREATE TABLE SHOP."{name}" ("key of" INTEGER NOT NULL PRIMARY KEY, "v.w" VARCHAR(3))')
        database.emulated.register("SHOP", name)
        database.execute(f"INSERT INTO SHOP.\"{name}\" VALUES (1, 'x')")
    run = database.run(snapshot_chunk_rows=1)
    database.capture()
    assert {row["table"]["name"] for row in run.all() if row["op"] == "r"} == {"T", "it's", "select", "a b", "ä"}
    database.execute('UPDATE SHOP."it\'s" SET "v.w" = \'y\'')
    database.capture()
    assert [row["op"] for row in run.all() if row["op"] != "schema"] == ["u"]
