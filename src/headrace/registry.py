"""Where sources, formats, sinks and drivers are found by name, without importing them.

A built-in is one line here: a name and the place it is imported from at the first use. Third parties add their own
through entry points (`headrace.sources`, `headrace.formats`, `headrace.sinks`, `headrace.drivers`), so nothing here
changes for them. The emulated databases do the same.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from headrace.errors import OptionError

_BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "source": {
        "db2": "headrace.sources.db2.source:Db2Source",
        "mysql": "headrace.sources.mysql.source:MysqlSource",
        "oracle": "headrace.sources.oracle.source:OracleSource",
        "postgresql": "headrace.sources.postgresql.source:PostgresSource",
        "sqlserver": "headrace.sources.sqlserver.source:SqlServerSource",
    },
    "format": {
        "canal_json": "headrace.formats.canal.format:CanalJson",
        "maxwell_json": "headrace.formats.maxwell:MaxwellJson",
        "ogg_json": "headrace.formats.goldengate:OggJson",
        "debezium_avro": "headrace.formats.debezium.avro:DebeziumAvro",
        "debezium_json": "headrace.formats.debezium.format:DebeziumJson",
        "dts_avro": "headrace.formats.dts.format:DtsAvro",
        "qlik_avro": "headrace.formats.qlik.format:QlikAvro",
        "qlik_json": "headrace.formats.qlik.format:QlikJson",
        "shareplex_json": "headrace.formats.shareplex.format:SharePlexJson",
    },
    "sink": {
        "kafka": "headrace.sinks.kafka.sink:KafkaSink",
        "files": "headrace.sinks.files:FilesSink",
        "delta": "headrace.sinks.lake.delta.sink:DeltaSink",
        "iceberg": "headrace.sinks.lake.iceberg.sink:IcebergSink",
        "jdbc": "headrace.sinks.jdbc.sink:JdbcSink",
        "memory": "headrace.sinks.memory:MemorySink",
    },
    # Drivers open a DB-API connection for a source: `connect(settings: Mapping[str, str])`.
    "driver": {
        "ibm-db": "headrace.sources.db2.driver:connect",
        "mssql-python": "headrace.sources.sqlserver.driver:connect",
        "oracledb": "headrace.sources.oracle.driver:connect",
    },
}


_EMULATORS = ("db2-emulator", "emulator", "oracle-emulator")
"""Drivers of the package `headrace-emulators`, which a demo needs and nothing else."""


def names(kind: str) -> list[str]:
    """All registered names of a kind (`source`, `format`, `sink`, `driver`), sorted."""
    return sorted({*_BUILT_IN[kind], *_of_packages(kind, tuple(sys.path))})


def built_in_names(kind: str) -> list[str]:
    """The names of a kind that come with Headrace itself, sorted: those that its reference pages describe."""
    return sorted(_BUILT_IN[kind])


def find(kind: str, name: str) -> Any:
    """The class or function registered under `name`.

    Raises:
        OptionError: the name is not registered (names the nearest one), or what it needs is not installed.
    """
    path = _BUILT_IN[kind].get(name)
    if path is not None:
        module, _, attribute = path.partition(":")
        return getattr(importlib.import_module(module), attribute)
    if (entry := _of_packages(kind, tuple(sys.path)).get(name)) is not None:
        return entry.load()
    if kind == "driver" and name in _EMULATORS:
        raise OptionError(
            f"The driver '{name}' is in the package headrace-emulators, which is not installed.",
            remedy="Run pip install 'headrace[demo]'.",
        )
    raise OptionError(f"Unknown {kind} '{name}'.", remedy=did_you_mean(name, names(kind)))


@cache
def _of_packages(kind: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """The entry points of a kind that packages on the search path have; a file of each package is read for them."""
    by_name: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"headrace.{kind}s"):
        by_name.setdefault(entry.name, entry)
    return by_name


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`Did you mean 'x'?`, or the list of what exists, to end an error's sentence."""
    known = list(known)
    if given.lower() == "mariadb" and "mysql" in known:
        return "Use 'mysql', which is for MariaDB too."
    near = difflib.get_close_matches(given.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    if near:
        best = next(k for k in known if k.lower() == near[0])
        return f"Did you mean '{best}'?"
    return f"Known: {', '.join(sorted(known))}."
