"""Java classes of Spark as the JVM keeps them in memory, in a file that `headrace.spark.archive_classes` makes.

A JVM that starts Spark reads and checks 15,000 classes. With this file (190 MB in the virtual environment, else in the
user's cache) it maps them instead, which saves 5 of 18 seconds of CPU until a first small Delta table is written (two
cores, Java 17). Sessions that Headrace starts on this machine use the file if it exists. A JVM that it doesn't suit
starts as if it didn't exist.
"""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from headrace.spark.java import build, cache_folder, find_java

DRAFT = "HEADRACE_CLASS_ARCHIVE_DRAFT"
"""The environment variable that names the file which the next session's JVM writes at its end."""
_QUIET = "-Xlog:cds*=off"


def class_archive() -> Path:
    """Where the file of this Java and this PySpark is, or would be: it goes when their virtual environment goes."""
    # The JVM takes the file only if it is of the same build, and the jars are the same by path, size and time.
    identity = hashlib.sha256(build(find_java()).encode())
    package = find_spec("pyspark")
    jars = Path(package.origin).parent / "jars" if package and package.origin else Path()
    for file in sorted(jars.glob("*.jar")):
        status = file.stat()
        identity.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    in_environment = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    folder = Path(sys.prefix) / "share" / "headrace" if in_environment else cache_folder() / "java"
    return folder / f"classes-{identity.hexdigest()[:16]}.jsa"


def java_options() -> list[str]:
    """The options of a JVM that uses the file; none where it isn't there."""
    draft = os.environ.get(DRAFT)
    if draft:
        return [f"-XX:ArchiveClassesAtExit={draft}", _QUIET]
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.is_file() else []
