"""A real Kafka broker of one node on this machine, for demos and tests.

It is Apache Kafka itself from Maven, in KRaft mode, listening on 127.0.0.1 only. It needs Java and PySpark (whose
resolver fetches the jars) and nothing else: no container, no root, no fixed port.
"""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from headrace.errors import ConnectError
from headrace.spark.jars import BROKER, maven_jars
from headrace.spark.java import find_java
from headrace_emulators.engine.ports import free_ports

_PLAINTEXT = "PLAINTEXT"
_HEAP = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{protocols}
log.dirs={data}
num.partitions=1
auto.create.topics.enable=true
default.replication.factor=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
"""

_LOG_SETTINGS = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
"""


class KafkaBroker:
    """A broker whose topics live in a folder; use it in a `with` block, or call `start` and `stop`.

    Stopping, killing and starting again keeps the topics and the port. What the broker printed is in
    `broker.log` in the folder.

    Args:
        folder: where settings, data and the log go; created when missing, used again when it holds a broker's data.
        start_timeout: seconds to wait until the broker answers.
        settings: further settings of the broker, by Kafka's names; they win over the emulator's. Kept with the folder.
        listeners: further listeners, by name, each with its protocol (`{"LOGIN": "SASL_SSL"}`) and a port of its own;
            what they need goes into `settings`. Kept with the folder.
        java: further options of Java, such as `-Djava.security.krb5.conf=...`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        start_timeout: float = 60.0,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        java: Sequence[str] = (),
    ) -> None:
        self.folder = Path(folder).absolute()
        self.log = self.folder / "broker.log"
        self._settings = self.folder / "server.properties"
        self._start_timeout = start_timeout
        self._given = dict(settings or {})
        self._protocols = {_PLAINTEXT: "PLAINTEXT", **(listeners or {})}
        self._java = tuple(java)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port` for clients (`bootstrap.servers`). The same after a restart."""
        return self.address(_PLAINTEXT)

    def address(self, listener: str) -> str:
        """`host:port` of a listener."""
        for line in self._settings.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "advertised.listeners":
                found = dict(one.split("://") for one in value.split(","))
                return found[listener]
        raise ConnectError(f"{self._settings} names no listener.", remedy="Delete the folder and start again.")

    @property
    def pid(self) -> int | None:
        """The process id while the broker runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> KafkaBroker:
        """Start the broker and return when it answers clients. Does nothing when it runs already.

        Raises:
            ConnectError: the broker ended or did not answer in time; the message names its log.
        """
        if self.pid is not None:
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._settings.exists():
            self._format()
        with self.log.open("ab") as log:
            printed_before = log.tell()
            self._process = subprocess.Popen(
                self._command("kafka.Kafka"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal belongs to the program that owns the broker, which then stops it in order.
                start_new_session=True,
            )
        self._wait_until_ready(printed_before)
        return self

    def stop(self) -> None:
        """Shut the broker down in order; kill it when that takes more than twenty seconds."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker at once, as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> KafkaBroker:
        """Stop and start again with the same topics on the same port."""
        self.stop()
        return self.start()

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self) -> None:
        """Prepare the data folder and write the settings, with free ports; they appear last, as the mark of success."""
        controller, *ports = free_ports(1 + len(self._protocols))
        text = _SERVER.format(
            controller=controller,
            listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(self._protocols, ports, strict=True)),
            protocols=",".join(f"{name}:{protocol}" for name, protocol in self._protocols.items()),
            data=self.folder / "data",
        )
        # Java takes the last of a setting that occurs twice.
        text += "".join(f"{name}={value}\n" for name, value in self._given.items())
        draft = self._settings.with_suffix(".draft")
        draft.write_text(text)
        (self.folder / "log4j2.properties").write_text(_LOG_SETTINGS)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with self.log.open("ab") as log:
            code = subprocess.run(
                [
                    *self._command("kafka.tools.StorageTool", settings=None),
                    *(
                        "format",
                        "--ignore-formatted",
                        "--cluster-id",
                        cluster.replace("-", "A"),
                        "--config",
                        str(draft),
                    ),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            ).returncode
        if code != 0:
            raise ConnectError(f"The Kafka broker could not prepare {self.folder}.", remedy=f"See {self.log}.")
        draft.replace(self._settings)

    def _command(self, main: str, settings: str | None = "server.properties") -> list[str]:
        log_settings = (self.folder / "log4j2.properties").as_uri()
        return [
            str(find_java()),
            *_HEAP,
            *self._java,
            f"-Dlog4j2.configurationFile={log_settings}",
            "-cp",
            os.pathsep.join(str(jar) for jar in _classpath()),
            main,
            *([str(self.folder / settings)] if settings else []),
        ]

    def _wait_until_ready(self, printed_before: int) -> None:
        """Wait until this process reports that it started and answers; its end is an error at once."""
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ConnectError(
                    f"The Kafka broker ended with code {self._process.returncode} while it started.",
                    remedy=f"See {self.log}.",
                )
            # The line comes first, because another program could answer on our port.
            if self._says_started(printed_before) and _answers(self.bootstrap):
                return
            time.sleep(0.1)
        self.kill()
        raise ConnectError(
            f"The Kafka broker did not answer on {self.bootstrap} within {self._start_timeout:.0f} seconds.",
            remedy=f"See {self.log}.",
        )

    def _says_started(self, printed_before: int) -> bool:
        with self.log.open("rb") as log:
            log.seek(printed_before)
            return b"Kafka Server started" in log.read()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _classpath() -> list[Path]:
    """The broker's jars, and from PySpark what Spark's resolver leaves out (Scala) and what makes the broker log."""
    import pyspark

    spark = Path(pyspark.__file__).parent / "jars"
    names = ("scala-library-*.jar", "slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar")
    return [*(jar for name in names for jar in spark.glob(name)), *maven_jars([BROKER])]


def _answers(bootstrap: str) -> bool:
    """Whether the broker answers Kafka's ApiVersions request, which it does once it takes clients."""
    host, _, port = bootstrap.rpartition(":")
    # Key 18 (ApiVersions), version 0, correlation 1, no client id; in front the length of all that.
    request = b"\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            answer = connection.recv(10)
    except OSError:
        return False
    return len(answer) == 10 and answer[4:8] == b"\x00\x00\x00\x01" and answer[8:10] == b"\x00\x00"
