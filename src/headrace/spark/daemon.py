"""The process that forks Spark's Python workers on this machine, without the archives on its path.

Spark puts `pyspark.zip` and a jar of 5,000 files in front of the path of its Python processes. Python before 3.13 reads
the directory of each archive again for every package that came out of it whenever caches are invalidated, and a worker
does that at the start of each task: 0.25 seconds of each task, however small. PySpark as it is installed is the same
code in a folder, and compiled once for all.

A session that will read or write messages names their formats, so that what does it is loaded once, before workers are
forked: each of them is ready a second earlier, and shares 70 MB with the others.

Spark runs it by `spark.python.daemon.module`: always with a local master, and on a cluster where it is set.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

FORMATS = "HEADRACE_FORMATS"
"""The environment variable that names formats, with commas between them."""
_ARCHIVES = ("pyspark.zip", "py4j-", "spark-core_")
"""How the names of the archives begin that Spark puts on the path; others may hold what tasks import."""


def leave_archives() -> None:
    """Take Spark's archives off the path, where the same PySpark is installed beside them."""
    folders = [entry for entry in sys.path if not Path(entry).name.startswith(_ARCHIVES)]
    installed = _found_in(folders)
    if installed is not None and _version(installed) == _version(_found_in(sys.path)):
        sys.path[:] = folders
        for entry in set(sys.path_importer_cache) - set(folders):
            del sys.path_importer_cache[entry]


def _found_in(folders: list[str]) -> ModuleSpec | None:
    return PathFinder.find_spec("pyspark", folders)


def _version(spec: ModuleSpec | None) -> bytes | None:
    """The file in which a PySpark says its version: a cluster's own may be another than the installed one."""
    loader: Any = spec and spec.loader
    return loader.get_data(str(Path(spec.origin).with_name("version.py"))) if spec and spec.origin else None


def load_formats(names: str) -> None:
    """Load what reads and writes messages of these formats. The first task reports errors.

    It is left out of garbage collection, which workers do after each task: that takes 75 milliseconds, and would copy
    what they share.
    """
    with suppress(Exception):
        importlib.import_module("headrace.formats.kernels").compile_all(names.split(","))
    gc.collect()
    gc.freeze()


def ends_quietly(main: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """What a worker does, without PySpark's stack trace where nobody waits for its answer any more: Java closes the
    connection when a query is stopped while its source plans.
    """

    def run(infile: Any, outfile: Any) -> None:
        try:
            main(infile, outfile)
        except BrokenPipeError:
            sys.exit(1)

    return run


if __name__ == "__main__":
    leave_archives()
    if os.environ.get(FORMATS):
        load_formats(os.environ[FORMATS])
    from pyspark import daemon

    daemon.worker_main = ends_quietly(daemon.worker_main)
    daemon.manager()  # type: ignore[no-untyped-call]
