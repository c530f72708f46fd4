"""A pipeline that is killed and started again beside a database that changes, and the checks that no fault may break.

What is killed runs as users run it: `headrace run`, in a session of its own, so that a kill takes driver, JVM and
Python workers at once.
The oracle reads the emulated database's own file and the topic with clients that share no code with the pipeline.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from headrace.pipeline import load_pipeline
from headrace.testing.faults import kill_session
from headrace.testing.waiting import PATIENCE, until

_STARTS = 5
_STEPS_OF_A_BATCH = 400
_EMULATORS = {"sqlserver": "emulator", "db2": "db2-emulator", "oracle": "oracle-emulator"}


@dataclass
class PipelineUnderTest:
    """One pipeline file, and runs of it that end by a fault, by a kill from outside, or in order."""

    folder: Path
    server: Path | str
    database: str | None
    sinks: list[dict[str, Any]]
    source_options: dict[str, Any] = field(default_factory=dict)
    kind: str = "sqlserver"
    runs: int = 0

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    def write(self) -> None:
        """Write the pipeline file; relative paths in it are relative to it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        source = {
            "type": self.kind,
            **({"driver": _EMULATORS[self.kind]} if self.kind in _EMULATORS else {}),
            "hostname": str(self.server),
            **({} if self.database is None else {"database": self.database}),
            **self.source_options,
        }
        data = {
            "source": source,
            "sinks": self.sinks,
            "pipeline": {"name": "faults", "checkpoint": "./checkpoint", "trigger": "200ms"},
        }
        self.file.write_text(yaml.safe_dump(data), encoding="utf-8")

    def start(self, *arguments: str, fault: str | None = None) -> subprocess.Popen[bytes]:
        """Start `headrace run`; the output goes to a file of its own."""
        self.runs += 1
        environment = {**os.environ, "HEADRACE_FAULT_SPARE": str(os.getsid(0))}
        environment.pop("HEADRACE_FAULTPOINTS", None)
        if fault is not None:
            faults = self.folder / f"faults-{self.runs}"
            faults.mkdir()
            environment |= {"HEADRACE_FAULTPOINTS": fault, "HEADRACE_FAULT_DIR": str(faults)}
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace", "run", str(self.file), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    @property
    def log(self) -> Path:
        """The output of the last run."""
        return self.folder / f"run-{self.runs}.log"

    @contextmanager
    def running(self, *arguments: str, fault: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A run that outlives no test, however the test ends."""
        run = self.start(*arguments, fault=fault)
        try:
            yield run
        finally:
            if run.poll() is None:
                _kill(run)

    def killed_at(self, point: str) -> None:
        """Run until the armed point kills everything, and see the proof that it did."""
        name = point.partition("@")[0]
        with self.running(fault=f"{name}=kill{point[len(name) :]}") as run:
            assert run.wait(PATIENCE) == -signal.SIGKILL, self.log.read_text(errors="replace")[-3000:]
        assert (self.folder / f"faults-{self.runs}" / f"{name}.hit").exists()

    def killed_after(self, seconds: float) -> None:
        """Run, and kill everything at a moment after it has begun a batch of its own."""
        for _ in range(_STARTS):
            if self._killed_after(seconds):
                return
            assert self._starved or self._asks_to_be_started, self.log.read_text(errors="replace")[-3000:]
        raise AssertionError(f"the machine is too busy: {_STARTS} runs ended before they were killed")

    def _killed_after(self, seconds: float) -> bool:
        before = len(self.batches)
        with self.running() as run:
            until(lambda: len(self.batches) > before or run.poll() is not None, "a batch is begun")
            try:
                run.wait(seconds)
            except subprocess.TimeoutExpired:
                _kill(run)
            return run.wait(PATIENCE) == -signal.SIGKILL

    def drain(self, spark: Any) -> None:
        """Run until everything that is there now has gone through, in a session that was there before.

        That a process of its own goes on after a kill is what the next one that is killed shows.
        """
        assert load_pipeline(self.file).start(spark, once=True).wait(PATIENCE)

    @property
    def _starved(self) -> bool:
        """Whether the last run ended because Spark gives a worker ten seconds to start: a fault of its own."""
        return "Python worker failed to connect back" in self.log.read_text(errors="replace")

    @property
    def _asks_to_be_started(self) -> bool:
        """Whether the last run stopped with the advice to start it again, as where a table was altered that it was just
        going to read."""
        return "Start again:" in self.log.read_text(errors="replace")

    @property
    def batches(self) -> list[Path]:
        """The entries of Spark's offset log."""
        return [f for f in (self.folder / "checkpoint" / "offsets").glob("*") if f.name.isdigit()]


def _kill(run: subprocess.Popen[bytes]) -> None:
    os.environ["HEADRACE_FAULT_SPARE"] = str(os.getsid(0))
    kill_session(os.getsid(run.pid))
    run.wait(PATIENCE)


def read_topics(bootstrap: str) -> list[dict[str, Any]]:
    """All messages of all topics, per partition in order, read with librdkafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    # Each partition waits for the fetch of the one before it.
    at_once = {"fetch.wait.max.ms": 10, "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", **at_once})
    found: list[dict[str, Any]] = []
    for topic in consumer.list_topics(timeout=20).topics.values():
        if topic.topic.startswith("_"):
            continue
        for partition in topic.partitions:
            place = TopicPartition(topic.topic, partition, OFFSET_BEGINNING)
            _, high = consumer.get_watermark_offsets(place, timeout=20)
            consumer.assign([place])
            read = 0
            while read < high:
                message = consumer.poll(20)
                assert message is not None, f"{topic.topic}/{partition} ended at {read} of {high}"
                assert message.error() is None, message.error()
                read = message.offset() + 1
                headers = dict(message.headers() or [])
                found.append(
                    {
                        "topic": topic.topic,
                        "partition": partition,
                        "key": message.key(),
                        "value": message.value(),
                        "position": headers["headrace.position"].decode(),
                    }
                )
    consumer.close()
    return found


def check_topic(messages: list[dict[str, Any]], file: Path, second: str, kind: str = "sqlserver") -> None:
    """Every captured change is in the topics; repeats have the same bytes; no key goes back beyond a repeat.

    Args:
        messages: of the topics.
        file: the emulated database's.
        second: the second part of every topic's name: the database, or the schema where topics have no database.
        kind: of server.
    """
    changes = captured_by_db2(file) if kind == "db2" else captured_changes(file)
    identities: dict[tuple[str, str, str, str], set[bytes]] = defaultdict(set)
    first_commit: dict[str, str] = {}
    for message in messages:
        if message["value"] is None:
            continue
        event = json.loads(message["value"])
        source = event["source"]
        path = f"{source['schema']}.{source['table']}"
        if event["op"] == "r":
            first_commit.setdefault(path, source["commit_lsn"])
            continue
        identity = (path, source["commit_lsn"], source["change_lsn"], str(source.get("event_serial_no", "")))
        identities[identity].add(message["value"])
    for identity, values in identities.items():
        assert len(values) == 1, f"{identity} came with {len(values)} different contents"
    missing = [c for c in changes if c[1] > first_commit.get(c[0], "") and c not in identities]
    assert not missing, f"{len(missing)} of {len(changes)} changes are not in the topics: {missing[:3]}"
    unknown = set(identities) - set(changes)
    assert not unknown, f"{len(unknown)} changes in the topics were never made: {sorted(unknown)[:3]}"
    _check_order(messages)
    assert {m["topic"].split(".")[1] for m in messages} == {second}


def _check_order(messages: list[dict[str, Any]]) -> None:
    """Per key, a position is new and greater than all before it, or one that was there already: a repeat."""
    seen: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for message in messages:
        if message["key"] is None:
            continue
        positions = seen[(message["topic"], message["key"])]
        position = message["position"]
        if positions and position < max(positions):
            assert position in positions, f"a change of {message['key']!r} came after a later one"
        positions.append(position)


def captured_changes(file: Path) -> list[tuple[str, str, str, str]]:
    """(table, commit, change, serial) of every event that the change tables hold, by SQLite's own client."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    # The catalog's views need the server's collation to exist; for names of tables any order will do.
    connection.create_collation("SQL_Latin1_General_CP1_CI_AS", lambda a, b: (a > b) - (a < b))
    schemas = dict(connection.execute('SELECT schema_id, name FROM "sys.schemas"').fetchall())
    tables = {
        t: (schemas[s], n) for t, s, n in connection.execute('SELECT object_id, schema_id, name FROM "sys.tables"')
    }
    found: list[tuple[str, str, str, str]] = []
    for instance, source in connection.execute('SELECT capture_instance, source_object_id FROM "cdc.change_tables"'):
        schema, table = tables[source]
        rows = connection.execute(
            f'SELECT "__$start_lsn", "__$seqval", "__$operation" FROM "cdc.{instance}_CT" '
            'ORDER BY "__$start_lsn", "__$command_id", "__$seqval", "__$operation"'
        )
        run, serial = None, 0
        for commit, change, operation in rows:
            serial = serial + 1 if (commit, change) == run else 1
            run = (commit, change)
            if operation != 3:
                found.append((f"{schema}.{table}", _text(commit), _text(change), str(serial)))
    connection.close()
    return found


def captured_by_db2(file: Path) -> list[tuple[str, str, str, str]]:
    """The same of Db2's change tables, an update being a D row and the I row of the same key after it."""
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    bodies = [json.loads(body) for (body,) in connection.execute('SELECT body FROM "emulator.tables"')]
    keys = {
        f"{b['schema']}.{b['name']}": next((key["columns"] for key in b["keys"] if key["primary"]), []) for b in bodies
    }
    found: list[tuple[str, str, str, str]] = []
    registered = connection.execute(
        'SELECT SOURCE_OWNER, SOURCE_TABLE, CD_OWNER, CD_TABLE, GLOBAL_RECORD FROM "ASNCDC.IBMSNAP_REGISTER"'
    ).fetchall()
    for owner, table, cd_owner, cd_table in (row[:4] for row in registered if row[4] == "N"):
        path = f"{owner}.{table}"
        key = "".join(f', "{column}"' for column in keys[path])
        rows = connection.execute(
            f'SELECT IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ, IBMSNAP_OPERATION{key} FROM "{cd_owner}.{cd_table}" '
            "ORDER BY IBMSNAP_COMMITSEQ, IBMSNAP_INTENTSEQ"
        ).fetchall()
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            first_half = (
                row[2] == "D"
                and following is not None
                and (following[0], following[2], following[3:]) == (row[0], "I", row[3:])
            )
            if not first_half:
                found.append((path, _text(row[0]), _text(row[1]), ""))
    connection.close()
    return found


def _text(lsn: bytes) -> str:
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


class Steps(Protocol):
    """Random transactions."""

    def step(self) -> None: ...

    def close(self) -> None: ...


class Changing:
    """Changes that go on until they are stopped; some are there from the beginning.

    They wait for the pipeline's batches, so that a slow machine has no more to do than a fast one.
    """

    def __init__(self, changes: Steps) -> None:
        self._changes = changes
        self._stop = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        for _ in range(100):
            self._changes.step()

    def start(self, subject: PipelineUnderTest) -> None:
        self._thread = threading.Thread(target=self._run, args=(subject,))
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if not self._closed:
            self._changes.close()
        self._closed = True

    def _run(self, subject: PipelineUnderTest) -> None:
        done = 0
        while not self._stop.wait(0.02):
            if done < _STEPS_OF_A_BATCH * (1 + len(subject.batches)):
                self._changes.step()
                done += 1
