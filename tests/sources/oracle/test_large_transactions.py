"""Rule: a transaction larger than memory goes through in bounded memory, also where part of it was taken back, and
holds nobody else up before its commit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sources.oracle.runs import Run, data

from headrace_emulators.oracle import EmulatedOracle

TABLE = "CREATE TABLE T (ID NUMBER(9) NOT NULL PRIMARY KEY, NAME VARCHAR2(40))"


@pytest.fixture
def database(tmp_path):
    with EmulatedOracle(tmp_path / "server") as made:
        made.run(TABLE, "ALTER TABLE T ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS")
        yield made


def loaded(first, count):
    return ((number, f"name of {number}") for number in range(first, first + count))


def test_a_transaction_that_is_not_held_in_memory_comes_whole_and_in_order(database, monkeypatch):
    monkeypatch.setattr("headrace.sources.oracle.change_rows._ROWS_IN_MEMORY", 1_000)
    run = Run(database, rows_per_slice=1_000)
    run.until_level()
    with database.connect() as large, database.connect() as small:
        large.session.load("SHOP", "T", loaded(1, 4_000))
        for number in range(3):
            small.execute("INSERT INTO T (ID, NAME) VALUES (:n, 'small')", n=100_000 + number)
            small.commit()
            # The others go through while it is open.
            assert [values["NAME"] for _, _, values in data(run.until_level())] == ["small"]
            large.session.load("SHOP", "T", loaded(4_001 + number * 1_000, 1_000))
        large.commit()
    found = [values["ID"] for _, _, values in data(run.until_level())]
    assert found == [str(number) for number in range(1, 7_001)]


def test_what_a_large_transaction_takes_back_is_looked_at_in_parts(database, monkeypatch):
    monkeypatch.setattr("headrace.sources.oracle.change_rows._ROWS_IN_MEMORY", 10)
    monkeypatch.setattr("headrace.sources.oracle.assembly._UNDONE_AT_ONCE", 7)
    run = Run(database)
    run.until_level()
    with database.connect() as session:
        for number in range(40):
            session.execute("INSERT INTO T (ID, NAME) VALUES (:n, 'kept')", n=number)
        session.execute("SAVEPOINT S")
        session.execute("UPDATE T SET NAME = 'no' WHERE ID < 30")
        for number in range(40, 80):
            session.execute("INSERT INTO T (ID, NAME) VALUES (:n, 'not kept')", n=number)
        session.execute("ROLLBACK TO S")
        session.execute("UPDATE T SET NAME = 'yes' WHERE ID = 7")
        session.commit()
    found = data(run.until_level())
    assert found == [
        *(("c", "T", {"ID": str(number), "NAME": "kept"}) for number in range(40)),
        ("u", "T", {"ID": "7", "NAME": "yes"}),
    ]


READER = """
import datetime as dt
import json
import resource
import sys
sys.path.insert(0, {root!r})
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from tests.sources.oracle.runs import Run
from headrace_emulators.oracle import EmulatedOracle
database = EmulatedOracle({folder!r})
run = Run(database, mining_range_scns=10**6)
run.offset = Offset.from_json(json.loads({offset!r}))
count, head = 0, run.source.head()
while run.offset.commit < head:
    run.now += dt.timedelta(seconds=10)
    end = run.source.advance(run.offset, Limit(upto=head), run.now)
    for piece in run.source.plan(run.offset, end):
        for batch in run.source.read(piece):
            count += batch.num_rows
    run.offset = end
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([count, used.ru_maxrss // 1024, used.ru_utime + used.ru_stime]))
"""


@pytest.mark.soak
def test_ten_million_rows_of_one_transaction_go_through_in_flat_memory(tmp_path):
    peaks = {}
    for rows in (100_000, 10_000_000):
        folder = tmp_path / str(rows)
        with EmulatedOracle(folder) as database:
            database.run(TABLE)
            run = Run(database, mining_range_scns=10**6)
            run.until_level()
            began = time.monotonic()
            with database.connect() as session:
                session.session.load("SHOP", "T", loaded(1, rows))
                session.commit()
            made = time.monotonic() - began
        script = READER.format(
            root=str(Path(__file__).parents[3]), folder=str(folder), offset=json.dumps(run.offset.to_json())
        )
        began = time.monotonic()
        told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        count, peak, cpu = json.loads(told.stdout)
        peaks[rows] = peak
        # One row more says the structure.
        assert count == rows + 1
        spent = time.monotonic() - began
        print(f"{rows:,} rows: made in {made:.0f} s, read in {spent:.0f} s ({cpu:.0f} s of CPU), peak {peak} MB")
    assert peaks[10_000_000] < peaks[100_000] + 200
