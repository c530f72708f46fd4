"""The process that forks Python workers takes PySpark from its folder, not from archives."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.waiting import PATIENCE

SPEC = importlib.util.find_spec("pyspark")
assert SPEC and SPEC.origin
ARCHIVE = Path(SPEC.origin).parent / "python" / "lib" / "pyspark.zip"


def found(program: str, *options: str) -> str:
    """What a new Python with the archive in front of its path prints."""
    path = os.pathsep.join([str(ARCHIVE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.system
def test_archives_are_left_where_pyspark_is_installed() -> None:
    program = (
        "import pyspark.version as before, sys; from headrace.spark.daemon import leave_archives; leave_archives();"
        "left = [p for p in [*sys.path, *sys.path_importer_cache] if 'pyspark.zip' in p];"
        "print(str(before.__file__).count('.zip'), left)"
    )
    assert found(program) == "1 []"


def test_archives_stay_where_there_is_no_other_pyspark() -> None:
    program = (
        "import sys; from headrace.spark import daemon as d; d._found_in = lambda folders: None;"
        "d.leave_archives(); print(any('pyspark.zip' in p for p in sys.path))"
    )
    assert found(program) == "True"


def test_archives_stay_where_another_version_is_installed() -> None:
    program = (
        "import sys; from headrace.spark import daemon as d; d._version = lambda found: found.origin;"
        "d.leave_archives(); print(any('pyspark.zip' in p for p in sys.path))"
    )
    assert found(program) == "True"


def test_archives_of_others_stay_on_the_path() -> None:
    program = (
        "import sys; from headrace.spark.daemon import leave_archives; sys.path.insert(0, 'mine.zip');"
        "leave_archives(); print([p for p in sys.path if p.endswith(('mine.zip', 'pyspark.zip'))])"
    )
    assert found(program) == "['mine.zip']"


def test_formats_are_loaded_before_workers_are_forked() -> None:
    program = (
        "import os; from headrace.spark.daemon import load_formats; load_formats('canal_json,unknown');"
        "from headrace.formats.canal.encode import CanalEncoder; from headrace.wire import tape_kernels as t;"
        "loaded = [k for k in vars(t).values() if getattr(getattr(k, 'kernel', 0), 'nopython_signatures', 0)];"
        "child = os.fork();"
        "from headrace.formats.kernels import compile_all; child or compile_all(['canal_json']); child or os._exit(0);"
        "print(len(loaded) > 0, os.waitpid(child, 0)[1])"
    )
    assert found(program) == "True 0"


@pytest.mark.system
def test_workers_do_not_collect_what_was_loaded_after_each_task() -> None:
    program = (
        "import gc; from headrace.spark.daemon import load_formats; load_formats('canal_json');"
        "print(gc.get_freeze_count() > 50_000, len(gc.get_objects()) < 50_000)"
    )
    assert found(program) == "True True"


def test_a_format_that_can_not_be_loaded_stops_no_worker() -> None:
    program = (
        "from headrace.formats import kernels; from headrace.spark.daemon import load_formats;"
        "kernels.compile_all = lambda names: 1 / 0; load_formats('canal_json'); print('served')"
    )
    assert found(program) == "served"


def test_workers_of_a_local_session_run_it(spark: Any) -> None:
    assert spark.sparkContext.getConf().get("spark.python.daemon.module") == "headrace.spark.daemon"

    def archives(batches: Any) -> Any:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"n": [sum(p.endswith(("pyspark.zip", ".jar")) for p in sys.path)]})

    assert [row.n for row in spark.range(0, 1, 1, 1).mapInArrow(archives, "n long").collect()] == [0]


def test_a_worker_that_nobody_waits_for_ends_without_a_stack_trace() -> None:
    program = """
import os
from headrace.spark.daemon import ends_quietly
def main(infile, outfile):
    try:
        outfile.write(b"answer")
        outfile.flush()
    except OSError:
        outfile.flush()
heard, said = os.pipe()
os.close(heard)
try:
    ends_quietly(main)(None, os.fdopen(said, "wb"))
except SystemExit as end:
    print(end.code)
os._exit(0 if not os.sys.stdout.flush() else 1)
"""
    assert found(program) == "1"
