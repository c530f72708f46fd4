"""Rule: the scenarios of Oracle capture in short, on a real database, where the environment names one. Nobody of this
project has run them yet (docs/live.md)."""

from __future__ import annotations

import os

import pytest
from tests.live.oracle import EXAMPLE, URL, settings_from
from tests.sources.oracle.runs import Run, data

from headrace import registry

TABLE = "HEADRACE_SCENARIO"


def test_the_address_gives_the_options_of_the_source():
    assert settings_from("oracle://C%23%23H:p%40ss@db/FREE?pdb=FREEPDB1") == {
        "driver": "oracledb", "hostname": "db", "port": "", "database": "FREE", "user": "C##H", "password": "p@ss",
        "pdb": "FREEPDB1",
    }  # fmt: skip
    with pytest.raises(ValueError, match=URL):
        settings_from("oracle://db")


class Live:
    """A real database as a scenario steers it: a table of our own in the user's schema."""

    def __init__(self, settings, directory):
        self.settings = settings
        self.directory = directory
        self.connection = registry.find("driver", "oracledb")(settings)
        if settings.get("pdb"):
            self.run(f"ALTER SESSION SET CONTAINER = {settings['pdb']}")

    def run(self, *statements):
        for statement in statements:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)
        self.connection.commit()


@pytest.fixture
def database(tmp_path):
    text = os.environ.get(URL, "").strip()
    if not text:
        pytest.skip(f"no Oracle to run on: set {URL}, for example {EXAMPLE} (docs/live.md)")
    live = Live(settings_from(text), tmp_path)
    live.run(
        f"CREATE TABLE {TABLE} (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME NVARCHAR2(40), CREDIT NUMBER(12,2), "
        "SEEN TIMESTAMP(3) WITH TIME ZONE, TOKEN RAW(8))",
        f"ALTER TABLE {TABLE} ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS",
    )
    try:
        yield live
    finally:
        live.run(f"DROP TABLE {TABLE} PURGE")
        live.connection.close()


@pytest.mark.live
def test_a_snapshot_and_what_follows_it_come_from_a_real_database(database):
    user = database.settings["user"].upper()
    database.run(f"INSERT INTO {TABLE} VALUES (1, 'it''s', 0.5, TIMESTAMP '2024-01-02 03:04:05.678 +02:00', 'DEAD')")
    run = Run(database, tables=f"{user}.{TABLE}", user=database.settings["user"])
    rows = run.until_level()
    database.run(f"INSERT INTO {TABLE} VALUES (2, UNISTR('\\4E2D'), -12.34, NULL, NULL)")
    database.run(f"UPDATE {TABLE} SET NAME = NULL WHERE ID = 1", f"UPDATE {TABLE} SET ID = ID + 1")
    database.run(f"DELETE FROM {TABLE} WHERE ID = 3")
    rows += run.until_level()
    one = {"ID": "1", "NAME": "it's", "CREDIT": "0.50", "SEEN": "2024-01-02T03:04:05.678+02:00", "TOKEN": "3q0="}
    two = {"ID": "2", "NAME": "中", "CREDIT": "-12.34", "SEEN": None, "TOKEN": None}
    found = [(op, values) for op, _, values in data(rows)]
    assert found[:3] == [("r", one), ("c", two), ("u", {**one, "NAME": None})]
    assert sorted(values["ID"] for op, values in found[3:-1]) == ["2", "3"]
    assert found[-1] == ("d", {**two, "ID": "3"})
