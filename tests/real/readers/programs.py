"""Runs the readers: Java programs beside this file, compiled once, with the other products' own jars from Maven."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.real.readers.cases import Flink

from headrace.errors import ConnectError
from headrace.spark.jars import maven_jars
from headrace.spark.java import find_java

CANAL = os.environ.get("HEADRACE_CANAL_VERSION", "1.1.8")
FLINK = tuple(os.environ.get("HEADRACE_FLINK_VERSIONS", "1.20.0,2.1.0").split(","))

_FLINK_PARTS = (
    "flink-json", "flink-table-runtime", "flink-table-common", "flink-table-api-java", "flink-core",
    "flink-streaming-java",
)  # fmt: skip
_SECONDS = 120


def read_by_canal(values: Iterable[str | None]) -> list[Any]:
    """What Canal's FlatMessage holds after each message."""
    jars = maven_jars((f"com.alibaba.otter:canal.protocol:{CANAL}",))
    return _run("CanalReader", jars, [], values)


def read_by_flink(version: str, flink: Flink, values: Iterable[str | None]) -> list[Any]:
    """The rows that a Flink format makes of each message, or its error."""
    jars = maven_jars(tuple(f"org.apache.flink:{part}:{version}" for part in _FLINK_PARTS))
    options = [f"{name}={value}" for name, value in flink.options.items()]
    arguments = [flink.format, f"ROW<{flink.columns}>", ",".join(flink.metadata), *options]
    return _run("FlinkReader", jars, arguments, values)


def _run(name: str, jars: Sequence[Path], arguments: Sequence[str], values: Iterable[str | None]) -> list[Any]:
    classes = _compiled(name, tuple(jars))
    # An empty line is Kafka's null: no message here is an empty text.
    lines = "".join(f"{'' if v is None else base64.b64encode(v.encode()).decode()}\n" for v in values)
    done = subprocess.run(
        [find_java(), "-cp", _path(classes, *jars), name, *arguments],
        input=lines,
        capture_output=True,
        encoding="utf-8",
        timeout=_SECONDS,
    )
    if done.returncode:
        raise AssertionError(f"{name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def _compiled(name: str, jars: tuple[Path, ...]) -> Path:
    """The folder of a reader's classes.

    Raises:
        ConnectError: there is no compiler.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise ConnectError(
            "The readers are Java programs, and this machine has no javac.",
            remedy="Run: apt-get install openjdk-17-jdk-headless",
        )
    classes = Path(mkdtemp(prefix="headrace-readers-"))
    source = Path(__file__).with_name(f"{name}.java")
    done = subprocess.run(
        [compiler, "-nowarn", "-d", classes, "-cp", _path(*jars), source],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise AssertionError(f"{source.name} does not compile:\n{done.stderr}")
    return classes


def _path(*parts: Path) -> str:
    return os.pathsep.join(map(str, parts))
