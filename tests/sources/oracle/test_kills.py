"""Rule: a reader that is killed at any moment goes on from its last offset, and what it read again is the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.sources.oracle.runs import Run

from headrace.testing.waiting import PATIENCE
from headrace_emulators.oracle.shop import OWNER, OracleShop

KILLS = 10
READER = """
import datetime as dt
import json
import sys
from pathlib import Path
root, server, folder = sys.argv[1:]
sys.path.insert(0, root)
from headrace_emulators.oracle import EmulatedOracle
from headrace.sources.base import Limit
from headrace.sources.offset import Offset
from tests.sources.oracle.runs import Run
folder = Path(folder)
database = EmulatedOracle(server, "SHOP")
run = Run(database, rac_nodes="instance:2", mining_range_scns=200, tables="SHOP.ORDERS,SHOP.PRODUCTS")
done = sorted(int(f.stem) for f in folder.glob("*.offset"))
if done:
    run.offset = Offset.from_json(json.loads((folder / f"{done[-1]}.offset").read_text()))
number = len(done)
while not (folder / "stop").exists() or run.offset.commit < (folder / "stop").read_text():
    planned = folder / f"{number}.planned"
    run.now = dt.datetime.now(dt.UTC)
    if planned.exists():
        end = Offset.from_json(json.loads(planned.read_text()))
    else:
        end = run.source.advance(run.offset, Limit(), run.now)
        if end == run.offset:
            continue
        new = folder / f"{number}.new"
        new.write_text(end.to_text())
        new.rename(planned)
    rows = [json.dumps(row, default=str) for row in run.rows_of(run.offset, end)]
    with (folder / f"{number}.read").open("a") as file:
        file.write(json.dumps(rows) + "\\n")
    run.source.acknowledge(run.offset)
    planned.rename(folder / f"{number}.offset")
    run.offset, number = end, number + 1
"""


@pytest.mark.slow
@pytest.mark.system
def test_killed_ten_times_nothing_is_lost_and_what_is_read_again_is_the_same(tmp_path):
    seed = 1
    print(f"seed {seed}")
    moments = random.Random(seed)
    shop = OracleShop.create(tmp_path / "server", seed)
    folder = tmp_path / "read"
    folder.mkdir()
    arguments = [str(Path(__file__).parents[3]), str(tmp_path / "server"), str(folder)]

    def reader():
        return subprocess.Popen([sys.executable, "-c", READER, *arguments], stderr=subprocess.PIPE, text=True)

    for _ in range(KILLS):
        process = reader()
        before = len(list(folder.glob("*.read")))
        deadline = time.monotonic() + 60
        while len(list(folder.glob("*.read"))) == before and process.poll() is None and time.monotonic() < deadline:
            shop.step()
        end = time.monotonic() + moments.uniform(0, 0.5)
        while time.monotonic() < end:
            shop.step()
        process.send_signal(signal.SIGKILL)
        told = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL, told
    shop.settle()
    (folder / "stop").write_text(Run(shop.database, rac_nodes="instance:2").source.head())
    process = reader()
    assert process.wait(PATIENCE) == 0, process.communicate()[1]

    held: dict[tuple[str, str], dict[str, str]] = {}
    for number in range(len(list(folder.glob("*.offset")))):
        readings = {line for line in (folder / f"{number}.read").read_text().splitlines() if line.endswith("]")}
        assert len(readings) == 1, f"batch {number} was read with different contents"
        for row in map(json.loads, json.loads(readings.pop())):
            if row["op"] not in ("r", "c", "u", "d"):
                continue
            before, after = (dict(row[name]) if row[name] else None for name in ("before", "after"))
            name, key = row["table"]["name"], row["key"][0][0]
            if before is not None:
                held.pop((name, before[key]), None)
            if after is not None:
                held[name, after[key]] = after
    for name, key, shown in (("ORDERS", "ORDER_ID", "REMARK"), ("PRODUCTS", "SKU", "TITLE")):
        source = {str(row[key]): row[shown] for row in shop.database.rows(OWNER, name)}
        assert {k: row[shown] for (table, k), row in held.items() if table == name} == source
