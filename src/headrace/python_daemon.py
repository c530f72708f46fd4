"""The process that forks Spark's Python workers on this machine, without the archives on its path.

Spark puts `pyspark.zip` and a jar of 5,000 files in front of the path of its Python processes. Python before 3.13 reads
the directory of each archive anew for every package that came out of it whenever caches are invalidated, and a worker
does that at the start of each task: 0.25 seconds of each task, however small. PySpark as it is installed is the same
code in a folder, and compiled once for all.

A session that will read or write messages names their formats, so that what does it is loaded once, before workers are
forked: each of them is ready a second earlier, and shares 70 MB with the others.

Spark runs it by `spark.python.daemon.module`, and only with a local master: a cluster's Python need not have PySpark.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress

FORMATS = "HEADRACE_FORMATS"
"""The environment variable that names formats, with commas between them."""


def leave_archives() -> None:
    """Take archives off the path, where PySpark is installed beside them."""
    folders = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    spec = importlib.util.find_spec("pyspark") if folders == sys.path else _found_in(folders)
    if spec is not None:
        sys.path[:] = folders
        for entry in set(sys.path_importer_cache) - set(folders):
            del sys.path_importer_cache[entry]


def _found_in(folders: list[str]) -> object:
    from importlib.machinery import PathFinder

    return PathFinder.find_spec("pyspark", folders)


def load_formats(names: str) -> None:
    """Load what reads and writes messages of these formats. What goes wrong is met, and said, by the first task."""
    with suppress(Exception):
        importlib.import_module("headrace.formats.kernels").compile_all(names.split(","))


if __name__ == "__main__":
    leave_archives()
    if os.environ.get(FORMATS):
        load_formats(os.environ[FORMATS])
    from pyspark.daemon import manager

    manager()  # type: ignore[no-untyped-call]
