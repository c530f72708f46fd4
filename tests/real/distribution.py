"""Debezium Server from Maven, unpacked once in Headrace's cache folder.

Its distribution is an archive, which Spark's `spark.jars.packages` can't name. It is resolved by the same resolver with
the same settings all the same: `spark.jars.ivySettings`, `spark.jars.repositories` (spark-defaults.conf) and
`DEFAULT_ARTIFACT_REPOSITORY` are honoured.
"""

from __future__ import annotations

import fcntl
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from headrace.errors import ConnectError
from headrace.spark.java import cache_folder, spark_environment

COORDINATE = os.environ.get("HEADRACE_DEBEZIUM_PACKAGE", "io.debezium:debezium-server-dist:3.0.8.Final")


def debezium_server() -> Path:
    """The folder of the unpacked distribution, downloaded (about 550 MB) if it is not here yet.

    Raises:
        ConnectError: it can't be downloaded.
    """
    group, artifact, version = COORDINATE.split(":")
    folder = cache_folder() / "distributions"
    folder.mkdir(exist_ok=True)
    unpacked = folder / f"{artifact}-{version}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.is_dir():
            with tempfile.TemporaryDirectory(dir=folder) as draft:
                archive = _downloaded(group, artifact, version, Path(draft))
                with tarfile.open(archive) as content:
                    content.extractall(Path(draft) / "content", filter="data")
                (Path(draft) / "content").replace(unpacked)
    return next(unpacked.iterdir())


def _downloaded(group: str, artifact: str, version: str, folder: Path) -> Path:
    """The archive, fetched into the folder by Spark's resolver (Ivy) in a JVM of its own."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.driver.memory", "512m")
    with tempfile.TemporaryFile() as printed, spark_environment():
        gateway = launch_gateway(conf, {"stdout": printed, "stderr": printed})
        try:
            report = _resolved(gateway.jvm, group, artifact, version, folder)
            files = [part.getLocalFile() for part in report.getAllArtifactsReports()]
            found = [Path(file.getPath()) for file in files if file is not None]
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=60)
    if not found:
        raise ConnectError(
            f"Debezium Server ({COORDINATE}) could not be downloaded from Maven.",
            remedy="Check the network or name your repository in spark.jars.ivySettings (spark-defaults.conf) or "
            "DEFAULT_ARTIFACT_REPOSITORY.",
        )
    return found[0]


def _resolved(jvm: Any, group: str, artifact: str, version: str, folder: Path) -> Any:
    spark = getattr(getattr(jvm.org.apache.spark.util, "MavenUtils$"), "MODULE$")
    option, printed = jvm.scala.Option.apply, jvm.System.err
    repositories, nowhere = option(jvm.System.getProperty("spark.jars.repositories")), option(None)
    settings_file = jvm.System.getProperty("spark.jars.ivySettings")
    if settings_file:
        settings = spark.loadIvySettings(settings_file, repositories, nowhere, True, printed)
    else:
        settings = spark.buildIvySettings(repositories, nowhere, True, printed)
    # A cache of its own: the archive is of no use once it is unpacked.
    settings.setDefaultCache(jvm.java.io.File(str(folder / "ivy")))
    core, name = jvm.org.apache.ivy.core, jvm.org.apache.ivy.core.module.id.ModuleRevisionId.newInstance
    parts = core.module.descriptor
    root = parts.DefaultModuleDescriptor(name("headrace", "real-producers", "1"), "release", None, True)
    root.addConfiguration(parts.Configuration("default"))
    wanted = parts.DefaultDependencyDescriptor(root, name(group, artifact, version), False, False, False)
    wanted.addDependencyConfiguration("default", "default")
    archive = parts.DefaultDependencyArtifactDescriptor(wanted, artifact, "tar.gz", "tar.gz", None, None)
    wanted.addDependencyArtifact("default", archive)
    root.addDependency(wanted)
    options = core.resolve.ResolveOptions()
    options.setTransitive(False)
    return jvm.org.apache.ivy.Ivy.newInstance(settings).resolve(root, options)
