"""Rule: Db2 and Oracle are plain streaming DataFrames too: they go on from their checkpoint, and make no batches
while nothing is changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from headrace_emulators.db2 import EmulatedDb2
from headrace_emulators.oracle import EmulatedOracle

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "db2_and_oracle.md"


class Db2:
    """A captured table in an emulated Db2."""

    format = "db2_cdc"

    def __init__(self, folder):
        self._database = EmulatedDb2(folder / "server").create_database("shop")
        self._database.execute("CREATE TABLE SHOP.T (ID INTEGER NOT NULL PRIMARY KEY, NAME VARCHAR(9))")
        self._database.register("SHOP", "T")
        self.options = {"driver": "db2-emulator", **self._database.settings, "tables": "SHOP.T"}

    def run(self, sql):
        self._database.execute(sql)
        self._database.capture()


class Oracle:
    """A captured table in an emulated Oracle."""

    format = "oracle_cdc"

    def __init__(self, folder):
        self._database = EmulatedOracle(folder / "server")
        self.run("CREATE TABLE T (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(9))")
        self.run("ALTER TABLE T ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
        self.options = {
            **self._database.settings, "tables": "SHOP.T", "stagingLocation": str(folder / "staging"),
        }  # fmt: skip

    def run(self, sql):
        self._database.run(sql)


@pytest.mark.system
@pytest.mark.parametrize("kind", [Db2, Oracle], ids=["db2", "oracle"])
def test_a_stream_goes_on_from_its_checkpoint_and_is_still_on_an_idle_database(spark, tmp_path, kind):
    headrace.register(spark)
    database, seen, numbers = kind(tmp_path), [], []

    def take(batch, number):
        numbers.append(number)
        rows = batch.where("op in ('r', 'c', 'u', 'd')").orderBy("position").collect()
        seen.extend((row.op, (row.after or row.before)["NAME"]) for row in rows)

    def started():
        stream = spark.readStream.format(kind.format).options(**database.options).load()
        return stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    database.run("INSERT INTO SHOP.T (ID, NAME) VALUES (1, 'a')")
    query = started()
    try:
        query.processAllAvailable()
        database.run("UPDATE SHOP.T SET NAME = 'b' WHERE ID = 1")
        query.processAllAvailable()
    finally:
        query.stop()
    database.run("INSERT INTO SHOP.T (ID, NAME) VALUES (2, 'c')")
    query = started()
    try:
        query.processAllAvailable()
        database.run("DELETE FROM SHOP.T WHERE ID = 2")
        query.processAllAvailable()
        known = len(numbers)
        # Each asks the source again.
        for _ in range(3):
            query.processAllAvailable()
    finally:
        query.stop()
    assert seen == [("r", "a"), ("u", "b"), ("c", "c"), ("d", "c")]
    assert len(numbers) == known == len(set(numbers))


@pytest.mark.system
def test_the_tutorials_code_runs_as_it_stands(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names = {}
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)
