"""Jars from Maven for Spark and Kafka on this machine, fetched by Spark's own resolver.

Spark resolves `spark.jars.packages` itself, so everything that is set up for it here (`spark-defaults.conf`,
`spark.jars.ivySettings`, a local Maven repository, `DEFAULT_ARTIFACT_REPOSITORY`) is honoured. What it answers is kept
as a list of files, so the next start uses no network and prints nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.errors import ConnectError, HeadraceError
from headrace.spark.java import cache_folder, spark_environment
from headrace.spark.releases import RELEASES, running_version

_RELEASE = RELEASES.get(running_version()) or next(iter(RELEASES.values()))
"""What goes with the running Spark; a session refuses one that is unknown."""

KAFKA = os.environ.get("HEADRACE_KAFKA_PACKAGE", _RELEASE.kafka)
"""Spark's Kafka source and sink; the environment variable HEADRACE_KAFKA_PACKAGE replaces the coordinate."""

DELTA = os.environ.get("HEADRACE_DELTA_PACKAGE", _RELEASE.delta)
"""Delta Lake, empty where it has no release for this Spark; HEADRACE_DELTA_PACKAGE replaces the coordinate."""

ICEBERG = os.environ.get("HEADRACE_ICEBERG_PACKAGE", _RELEASE.iceberg)
"""Apache Iceberg, empty where it has no release for this Spark; HEADRACE_ICEBERG_PACKAGE replaces the coordinate."""

AVRO = os.environ.get("HEADRACE_AVRO_PACKAGE", _RELEASE.avro)
"""Spark's `from_avro` and `to_avro`; the environment variable HEADRACE_AVRO_PACKAGE replaces the coordinate."""

SQLITE = os.environ.get("HEADRACE_SQLITE_PACKAGE", "org.xerial:sqlite-jdbc:3.46.0.0")
"""A database in a file, in which tests keep Iceberg's catalogue; HEADRACE_SQLITE_PACKAGE replaces the coordinate."""

BROKER = os.environ.get("HEADRACE_BROKER_PACKAGE", "org.apache.kafka:kafka_2.13:4.1.0")
"""A Kafka broker for demos and tests; the environment variable HEADRACE_BROKER_PACKAGE replaces the coordinate."""


def maven_jars(coordinates: Sequence[str]) -> tuple[Path, ...]:
    """The jar files of these Maven coordinates and of all that they need, downloaded if they are not here yet.

    Runs on the driver's machine. Several processes may call it at once; one downloads, the others wait.

    Args:
        coordinates: `group:artifact:version`, in any order; empty ones are left out.

    Raises:
        ConnectError: a coordinate does not exist, or no repository can be reached.
    """
    wanted = ",".join(sorted(set(coordinates) - {""}))
    if not wanted:
        return ()
    folder = cache_folder() / "jars"
    folder.mkdir(exist_ok=True)
    listing = folder / (hashlib.sha256(wanted.encode()).hexdigest()[:16] + ".json")
    known = _listed(listing)
    if known:
        return known
    with only_one_process(folder / "lock"):
        known = _listed(listing)
        if not known:
            known = _resolve(wanted)
            draft = listing.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps({"coordinates": wanted, "jars": [str(jar) for jar in known]}, indent=1))
            draft.replace(listing)
    return known


def _listed(listing: Path) -> tuple[Path, ...]:
    """The jars of a kept answer, or nothing when there is none or one of its files is gone."""
    try:
        jars = tuple(Path(jar) for jar in json.loads(listing.read_text())["jars"])
    except (OSError, ValueError, KeyError):
        return ()
    return jars if all(jar.is_file() for jar in jars) else ()


def _resolve(coordinates: str) -> tuple[Path, ...]:
    """Start a JVM the way PySpark does, with `spark.jars.packages`, and ask it which jars Spark found."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.jars.packages", coordinates).set("spark.driver.memory", "512m")
    if (folder := ivy_folder()) is not None:
        conf = conf.set("spark.jars.ivy", str(folder))
    with tempfile.TemporaryFile() as printed, spark_environment():
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, {"stdout": printed, "stderr": printed}
            )
        except PySparkRuntimeError as failure:
            printed.seek(0)
            raise _unresolved(coordinates, printed.read().decode("utf-8", "replace")) from failure
        try:
            jars = str(gateway.jvm.System.getProperty("spark.jars") or "")
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=60)
    return tuple(Path(jar.removeprefix("file://")) for jar in jars.split(",") if jar)


def ivy_folder() -> Path | None:
    """Where Spark's resolver keeps what it downloads for a user who has no home to write to, as in many containers;
    None for its own place there."""
    try:
        # Java asks for the user's home here, and not in HOME.
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        home = ""
    return None if os.access(home, os.W_OK) else cache_folder() / "ivy"


def _unresolved(coordinates: str, printed: str) -> ConnectError:
    if os.environ.get("HEADRACE_DEBUG"):
        sys.stderr.write(printed)
    missing = re.findall(
        r"unresolved dependency: (\S+?):? not found|:: ([\w.\-]+#[\w.\-]+;[\w.\-]+): not found", printed
    )
    names = ", ".join(dict.fromkeys((a or b).replace("#", ":").replace(";", ":") for a, b in missing)) or coordinates
    return ConnectError(
        f"Can't download the Java libraries {names} from Maven.",
        remedy="Check the network or name your repository in spark.jars.ivySettings (spark-defaults.conf) or "
        "DEFAULT_ARTIFACT_REPOSITORY; HEADRACE_DEBUG=1 prints the output of Spark's resolver.",
    )


@contextlib.contextmanager
def only_one_process(lock: Path) -> Iterator[None]:
    """Hold a lock file for as long as the block lasts; other processes wait."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


_DEMO = ((DELTA,),)
_OTHERS = ((KAFKA, DELTA, AVRO, ICEBERG, SQLITE), (KAFKA, DELTA), (KAFKA, ICEBERG), (KAFKA,), (ICEBERG,), (BROKER,))


def prefetch(sets: Sequence[Sequence[str]]) -> None:
    """Download sets of jars, so that the first start of what uses them is quick."""
    started = time.monotonic()
    count = len({jar for coordinates in sets for jar in maven_jars(coordinates)})
    print(f"{count} jars from Maven ready ({time.monotonic() - started:.0f} s)")


def main(words: Sequence[str] = ()) -> None:
    """Run `python -m headrace.spark.jars`: for the demo, the tests and local pipelines; with `demo` for that alone."""
    try:
        prefetch(_DEMO if [*words] == ["demo"] else (*_DEMO, *_OTHERS))
    except HeadraceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
