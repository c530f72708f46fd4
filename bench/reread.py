"""What it costs that a change of structure makes a table be read again, beside its first read.

A pipeline mirrors a table of 10 columns into Delta. A statement cuts the values of a column, so the pipeline reads the
table again beside the stream and merges the rows into the mirror. Three runs with `--once`, each a process of its own:
the first read, one with nothing to do, and the one that reads again. CPU counts of all processes of a run, without the
server's; what a run costs that has nothing to do stands apart.

    python bench/reread.py [postgresql|mariadb] [--rows 1000000] [--runs 3]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from beside_debezium import Database
from mysql import MariaDb
from postgresql import Postgres
from stream import Cost, spent

CUTS = {
    "postgresql": "alter table wide alter column price type numeric(12,2) using round(price, 1)",
    "mariadb": "alter table wide modify column price decimal(12,1), algorithm=copy; "
    "alter table wide modify column price decimal(12,2)",
}
DATABASES: dict[str, type[Database]] = {"postgresql": Postgres, "mariadb": MariaDb}


def main() -> None:
    """Set up, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", choices=list(DATABASES), default="postgresql", nargs="?")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    costs: dict[str, list[Cost]] = {"first read": [], "nothing to do": [], "read again": []}
    for run in range(arguments.runs):
        with tempfile.TemporaryDirectory(prefix="headrace-") as name:
            folder = Path(name)
            # A server may run as a user of its own.
            folder.chmod(0o755)
            database = DATABASES[arguments.database]()
            with database.started(folder / "database"):
                database.clear()
                database.fill(1, arguments.rows - 1)
                file = pipeline(folder, database)
                costs["first read"].append(once(file))
                costs["nothing to do"].append(once(file))
                database.run(CUTS[arguments.database])
                costs["read again"].append(once(file))
                require_read_again(file)
        print(f"run {run + 1}", {kind: f"{found[-1].cpu:.1f} s" for kind, found in costs.items()}, flush=True)
    idle = statistics.median(cost.cpu for cost in costs["nothing to do"])
    for kind, found in costs.items():
        cpu = statistics.median(cost.cpu for cost in found)
        parts = ", ".join(f"{part} {statistics.median(getattr(c, part) for c in found):.1f}" for part in PARTS)
        beyond = f"; {arguments.rows / (cpu - idle):,.0f} rows a second of CPU beyond it" if cpu > idle else ""
        print(f"{kind:14}{cpu:6.1f} s of CPU ({parts}), {statistics.median(c.wall for c in found):.1f} s{beyond}")


PARTS = ("driver", "jvm", "python")


def pipeline(folder: Path, database: Database) -> Path:
    """A pipeline file for the table's mirror."""
    file = folder / "pipeline.yaml"
    sections = {
        "pipeline": {"name": "reread", "checkpoint": str(folder / "checkpoint")},
        "source": database.headrace("reread", ["wide"]),
        "sinks": [{"type": "delta", "path": str(folder / "lake")}],
    }
    file.write_text(yaml.safe_dump(sections))
    return file


def once(file: Path) -> Cost:
    """What a run needs until it has everything."""
    began = time.perf_counter()
    with (file.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "run", "--once", str(file)], stdout=log, stderr=subprocess.STDOUT
        )
        cost = Cost(0, 0, 0, 0)
        while process.poll() is None:
            try:
                cost = spent(process.pid)
            except KeyError:
                break
            time.sleep(0.1)
    if process.wait() != 0:
        sys.exit((file.parent / "log").read_text()[-3000:])
    return Cost(cost.driver, cost.jvm, cost.python, time.perf_counter() - began)


def require_read_again(file: Path) -> None:
    """End where the last run did not do what is measured."""
    log = (file.parent / "log").read_text()
    if "was read again beside the stream" not in log:
        sys.exit(f"Nothing was read again. {log[-3000:]}")


if __name__ == "__main__":
    main()
