"""A Spark session on this machine, for the command line, the demo and tests.

On a cluster the platform makes the session, and nothing here is used.

Local files are made without a process for each (`UnforkedFiles.java`): Hadoop starts `chmod` for each file and
`readlink` for each rename where it has no native library, which Spark does not
bring: 10 to 30 ms each, several times in each commit of a Delta table.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import OptionError
from headrace.spark import class_archive, memory
from headrace.spark.jars import DELTA, KAFKA, maven_jars
from headrace.spark.java import spark_environment
from headrace.spark.releases import release_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "headrace.spark.UnforkedFiles"
_SETTING = "fs.file.impl"


def use_unforked_files(spark: SparkSession) -> None:
    """Compile the classes by the compiler that Spark brings, and let Hadoop take them from now on.

    Nothing is done where Hadoop has its native library, or somebody chose another class for local files. Nor is it on
    a cluster, to which `spark.master` among the settings may lead: its executors have no classes of the driver's.

    Args:
        spark: a session that has just been started.
    """
    jvm: Any = spark.sparkContext._jvm
    if not spark.sparkContext._jsc.isLocal():
        return
    hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
    if hadoop.get(_SETTING) is not None or jvm.org.apache.hadoop.io.nativeio.NativeIO.isAvailable():
        return
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(files("headrace.spark").joinpath("UnforkedFiles.java").read_text(encoding="utf-8"))
    # Spark removes the folder when it ends.
    folder = Path(str(spark.sparkContext._temp_dir)) / "classes"
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder / f"{name.replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(jvm.java.io.File(str(folder)).toURI().toURL())
    local = jvm.java.net.URI("file:///")
    kept = jvm.org.apache.hadoop.fs.FileSystem.get(local, hadoop)
    hadoop.set(_SETTING, _CLASS)
    hadoop.set("fs.AbstractFileSystem.file.impl", f"{_CLASS}$Context")
    # Out of what Hadoop keeps, so that the next one is ours.
    kept.close()


__all__ = ["DELTA", "KAFKA", "spark_session"]

# Measured on 2 cores: the first batch of the demo took 11 seconds in place of 32. One compiler tier needs the code
# cache that both have together otherwise.
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseParallelGC")
# Java's 240 MB were full after 7 minutes of plans that each had code of their own; then it compiles nothing any more,
# for as long as it runs. What is reserved takes no memory before it is used.
_LONG_RUN = ("-XX:ReservedCodeCacheSize=512m",)
# A length in broken Avro bytes would make Java allocate up to 2 GB before it looks whether so much is there.
_AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{what}.maxLength={most}"
    for what, most in (("string", 1 << 26), ("bytes", 1 << 26), ("collectionItems", 1 << 22))
)
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""PySpark's, which print the trace of the JVM and the text of the query, with the values in it."""
_EXTENSIONS = "spark.sql.extensions"
_DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ICEBERG_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def spark_session(
    app_name: str,
    *,
    jars: Sequence[str] = (),
    conf: Mapping[str, str] | None = None,
    master: str = "local[*]",
    short_lived: bool = False,
) -> SparkSession:
    """Start Spark in this process, or take the session that runs already.

    The session has Java from `headrace.spark.java`, this Python in its workers, the time zone UTC, no web page and a
    console that shows errors only. With a local master nothing listens on any address but 127.0.0.1.
    A running session is taken when it has the jars; `conf` is then applied as far as it can change at run time.

    Args:
        app_name: the name that Spark shows.
        jars: Maven coordinates, such as `KAFKA` and `DELTA`; asking for Delta also sets its extension and catalog,
            asking for Iceberg its extension. An empty one is left out: `ICEBERG` where Iceberg has no release for this
            Spark.
        conf: Spark settings, which win over ours. `spark.driver.memory` is otherwise `SPARK_DRIVER_MEMORY`, or half of
            the memory that the machine or its container has, at most 4 GB.
        master: where to run.
        short_lived: for minutes, not days: the JVM compiles less and is warm sooner, but slower in the long run.

    Raises:
        ConnectError: there is no Java that suits Spark, or a jar can't be downloaded.
        OptionError: the running session was started without one of the jars, or Headrace does not run on this Spark.
    """
    import pyspark
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from headrace.spark.java_names import remember_java_names

    release_of(pyspark.__version__)
    given = dict(conf or {})
    is_running = SparkContext._active_spark_context is not None
    session = (
        _reused(SparkSession.builder.getOrCreate(), jars, given)
        if is_running
        else _started(app_name, _settings(jars, given, master), master, short_lived=short_lived)
    )
    remember_java_names(session)
    return session


def _started(app_name: str, settings: dict[str, str], master: str, *, short_lived: bool) -> SparkSession:
    from pyspark.sql import SparkSession

    _put_first(settings, "spark.driver.extraJavaOptions", list(_QUICK_START if short_lived else _LONG_RUN), " ")
    _put_first(settings, "spark.driver.extraJavaOptions", class_archive.java_options(), " ")
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with spark_environment():
        session = builder.getOrCreate()
    use_unforked_files(session)
    return session


def silence(spark: SparkSession) -> None:
    """Keep stack traces off the console: those of the JVM, and those that PySpark logs by itself for each failure of a
    query, also for one that is met and dealt with. An error is raised all the same.
    """
    from pyspark.logger import PySparkLogger

    spark.sparkContext.setLogLevel("OFF")
    for name in _QUERY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _settings(jars: Sequence[str], given: Mapping[str, str], master: str) -> dict[str, str]:
    """Our settings with the given ones over them; lists (jars, extensions, Java options) are joined."""
    settings = {
        "spark.driver.memory": memory.heap(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(2 * _cores(master)),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Rows go to Python workers in batches by number; these are bounded by bytes too, because values may be large.
        "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
        # Java compiles no method beyond 8000 bytes of code. Spark's own limit lets the code of a whole stage grow to
        # eight times that, which then is interpreted for ever: writing Canal's JSON took twice as long.
        "spark.sql.codegen.hugeMethodLimit": "8000",
        # A batch of a few tables needs some hundred pieces of generated code. Spark keeps 100, so each batch would
        # compile all of them again: 305 a batch of five tables, 24 with this.
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.python.daemon.module"] = "headrace.spark.daemon"
    needs = session_needs(jars)
    extensions = needs.pop(_EXTENSIONS, "")
    settings.update(needs)
    if _asks_for_delta(jars):
        # Delta spreads its log over 50 tasks otherwise, which takes longer than all other work on a small machine.
        settings["spark.databricks.delta.snapshotPartitions"] = "2"
    settings.update(given)

    # The package is installed as files, so the path outlives the block.
    with as_file(files("headrace.pipeline").joinpath("log4j2.properties")) as log_settings:
        quiet = f'"-Dlog4j2.configurationFile={log_settings.as_uri()}"'
    _put_first(settings, "spark.driver.extraJavaOptions", [quiet, *_AVRO_LIMITS], " ")
    _put_first(settings, "spark.executor.extraJavaOptions", list(_AVRO_LIMITS), " ")
    _put_first(settings, "spark.jars", [str(jar) for jar in maven_jars(jars)], ",")
    _put_first(settings, _EXTENSIONS, extensions.split(",") if extensions else [], ",")
    return settings


def session_needs(jars: Sequence[str]) -> dict[str, str]:
    """The settings without which a session can't write with these jars: extensions, and Delta's catalog.

    Args:
        jars: see `spark_session`.
    """
    extensions = [
        *([_DELTA_EXTENSION] if _asks_for_delta(jars) else []),
        *([_ICEBERG_EXTENSION] if _asks_for(jars, "iceberg-spark-runtime") else []),
    ]
    needs = {_EXTENSIONS: ",".join(extensions)} if extensions else {}
    return needs | ({"spark.sql.catalog.spark_catalog": _DELTA_CATALOG} if _asks_for_delta(jars) else {})


def _put_first(settings: dict[str, str], name: str, values: list[str], separator: str) -> None:
    given = settings.get(name, "")
    missing = [value for value in values if value not in given]
    joined = separator.join([*missing, given] if given else missing)
    if joined:
        settings[name] = joined


def _asks_for_delta(jars: Sequence[str]) -> bool:
    return _asks_for(jars, "delta-spark")


def _asks_for(jars: Sequence[str], artifact: str) -> bool:
    return any(_artifact(coordinate).startswith(artifact) for coordinate in jars if coordinate)


def _artifact(coordinate: str) -> str:
    """`delta-spark_2.13` of `io.delta:delta-spark_2.13:4.0.0`."""
    parts = coordinate.split(":")
    if len(parts) != 3:
        raise OptionError(
            f"{coordinate!r} is not a Maven coordinate.",
            remedy="Write it as group:artifact:version, separated by colons.",
        )
    return parts[1]


def _cores(master: str) -> int:
    """The cores that a local master uses; for others those of this machine, as a first guess."""
    match = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if match and match.group(1) != "*":
        return int(match.group(1) or 1)
    return os.cpu_count() or 1


def _reused(session: SparkSession, jars: Sequence[str], conf: Mapping[str, str]) -> SparkSession:
    running = session.sparkContext.getConf()
    loaded = f"{running.get('spark.jars', '')},{running.get('spark.jars.packages', '')}"
    missing = [coordinate for coordinate in jars if coordinate and _artifact(coordinate) not in loaded]
    if missing:
        raise OptionError(
            f"The running Spark session was started without {', '.join(missing)}.",
            remedy="Stop it first (spark.stop()), or start it with these coordinates in spark.jars.packages.",
        )
    for name, value in conf.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
    return session
