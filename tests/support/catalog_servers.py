"""Catalogue servers on this machine: a Hive metastore from the jars that PySpark brings, and the server of REST
catalogues by which Iceberg tests its own clients. Each listens on the loopback only, and keeps nothing.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.spark.jars import ICEBERG, SQLITE, maven_jars
from headrace.spark.java import cache_folder, spark_environment

_VERSION = ICEBERG.rpartition(":")[2]
_CORE = f"org.apache.iceberg:iceberg-core:{_VERSION}"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class CatalogServers:
    """Where they listen.

    Args:
        rest: the address of the REST catalogue.
        metastore: that of a Hive metastore as it comes, which compares columns by position.
        lenient_metastore: that of one which takes any columns, as Iceberg wants it.
    """

    rest: str
    metastore: str
    lenient_metastore: str


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[CatalogServers]:
    """All servers, in one JVM, until the block ends.

    Args:
        folder: an empty one for their databases and tables.
    """
    jars = [*maven_jars([_CORE, SQLITE]), _tests_jar()]
    with _jvm(folder / "servers.log", jars) as jvm:
        yield CatalogServers(_rest(jvm, folder), _metastore(jvm, folder), _metastore(jvm, folder, lenient=True))


def _rest(jvm: Any, folder: Path) -> str:
    """Iceberg's REST adapter over a catalogue in a database, behind the web server that Spark brings."""
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    place = {"uri": f"jdbc:sqlite:{folder}/rest.db", "warehouse": f"{folder}/rest", "jdbc.schema-version": "V1"}
    catalog.initialize("backend", _java_map(jvm, place))
    servlet = jvm.org.apache.iceberg.rest.RESTCatalogServlet(jvm.org.apache.iceberg.rest.RESTCatalogAdapter(catalog))
    jetty = jvm.org.sparkproject.jetty
    server = jetty.server.Server(jvm.java.net.InetSocketAddress(_LOOPBACK, 0))
    context = jetty.servlet.ServletContextHandler(jetty.servlet.ServletContextHandler.NO_SESSIONS)
    context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server.setHandler(context)
    server.start()
    return f"http://{_LOOPBACK}:{server.getConnectors()[0].getLocalPort()}"


def _metastore(jvm: Any, folder: Path, *, lenient: bool = False) -> str:
    """Hive's own service over a database in memory; its main program would listen on every address."""
    hive = jvm.org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:memory:{folder.name};create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{folder}/hive",
        "hive.metastore.disallow.incompatible.col.type.changes": str(not lenient).lower(),
        # The pools that it knows are not among PySpark's jars.
        "datanucleus.connectionPoolingType": "NONE",
    }
    for name, value in settings.items():
        conf.set(name, value)
    handler = hive.metastore.HiveMetaStore.HMSHandler("headrace-tests", conf, False)
    if not lenient:
        # For the locks by which Iceberg commits, once for both: they have one database.
        hive.metastore.txn.TxnDbUtil.prepDb(conf)
    processor = hive.metastore.TSetIpAddressProcessor(hive.metastore.RetryingHMSHandler.getProxy(conf, handler, False))
    thrift = jvm.org.apache.thrift
    socket = thrift.transport.TServerSocket(jvm.java.net.InetSocketAddress(_LOOPBACK, 0))
    port = socket.getServerSocket().getLocalPort()
    given = thrift.server.TThreadPoolServer.Args(socket)
    given.processor(processor)
    server = thrift.server.TThreadPoolServer(given)
    # It serves until its JVM ends, and the call with it.
    threading.Thread(target=_until_the_jvm_ends, args=(server.serve,), daemon=True).start()
    return f"thrift://{_LOOPBACK}:{port}"


def _until_the_jvm_ends(serve: Any) -> None:
    from py4j.protocol import Py4JError

    with contextlib.suppress(Py4JError, OSError):
        serve()


def _tests_jar() -> Path:
    """Iceberg's jar of tests, which has the server. Spark's resolver takes no classifier, so Ivy is asked for it."""
    listing = cache_folder() / "jars" / f"iceberg-core-{_VERSION}-tests.json"
    with contextlib.suppress(OSError, ValueError):
        known = Path(json.loads(listing.read_text()))
        if known.is_file():
            return known
    with _jvm(listing.with_suffix(".log"), ()) as jvm:
        nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
        spark = getattr(getattr(jvm.org.apache.spark.util, "MavenUtils$"), "MODULE$")
        ivy = jvm.org.apache.ivy
        settings = spark.buildIvySettings(nothing, nothing, False, jvm.java.lang.System.err)
        module, descriptor = ivy.core.module.id.ModuleRevisionId, ivy.core.module.descriptor
        group, name, version = _CORE.split(":")
        asking = descriptor.DefaultModuleDescriptor.newDefaultInstance(module.newInstance("headrace", "tests", "1"))
        wanted = descriptor.DefaultDependencyDescriptor(
            asking, module.newInstance(group, name, version), False, False, False
        )
        wanted.addDependencyConfiguration("default", "master")
        classifier = _java_map(jvm, {"m:classifier": "tests"})
        jar = descriptor.DefaultDependencyArtifactDescriptor(wanted, name, "test-jar", "jar", None, classifier)
        wanted.addDependencyArtifact("default", jar)
        asking.addDependency(wanted)
        options = ivy.core.resolve.ResolveOptions()
        options.setConfs(_java_strings(jvm, ["default"]))
        report = ivy.Ivy.newInstance(settings).resolve(asking, options)
        found = Path(report.getAllArtifactsReports()[0].getLocalFile().getPath())
    listing.write_text(json.dumps(str(found)))
    return found


@contextlib.contextmanager
def _jvm(log: Path, jars: Sequence[Path]) -> Iterator[Any]:
    """A JVM with PySpark's jars and these, started as PySpark starts its own; it ends with the block."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.driver.memory", "512m")
    conf.set("spark.driver.extraClassPath", ":".join(str(jar) for jar in jars))
    with log.open("wb") as printed:
        with spark_environment():
            gateway = launch_gateway(conf, {"stdout": printed, "stderr": printed})  # type: ignore[no-untyped-call]
        try:
            yield gateway.jvm
        finally:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(timeout=60)


def _java_map(jvm: Any, values: Mapping[str, str]) -> Any:
    made = jvm.java.util.HashMap()
    for name, value in values.items():
        made.put(name, value)
    return made


def _java_strings(jvm: Any, texts: Sequence[str]) -> Any:
    made = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.String"), len(texts))
    for place, text in enumerate(texts):
        made[place] = text
    return made
