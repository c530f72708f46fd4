"""Rule: whatever sessions do, and wherever batches are cut and read again, each committed change comes once and in its
place, and none of what was rolled back.

Hypothesis draws what two sessions do on a real server, when batches are read, how large they may be, and which of them
are read a second time. What is expected is what the server returned to the sessions; what tables hold at the end is
asked of the server by COPY.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.mirror import Mirror
from tests.support.postgres_changes import held
from tests.support.postgresql import PostgresDatabase, PostgresServer

from headrace.sources.offset import Offset
from headrace.sources.reader import source_named
from headrace.testing.sources import SourceRun

Event = tuple[str, str, str | None]
"""An operation, its table, and the row's key after it."""
KEYS = {"t": ("id",), "whole": ("id",), "parts": ("id",), "heap": ()}
TABLES = tuple(KEYS)
PLACED = ("c", "u", "d", "t", "message")
SETUP = """
CREATE TABLE t (id int PRIMARY KEY, v text, big text);
ALTER TABLE t ALTER big SET STORAGE EXTERNAL;
CREATE TABLE whole (id int PRIMARY KEY, v text, big text);
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL;
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE parts (id int PRIMARY KEY, v text, big text) PARTITION BY RANGE (id);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (5) TO (MAXVALUE);
CREATE TABLE heap (id int, v text, big text);
ALTER TABLE heap REPLICA IDENTITY FULL;
CREATE TABLE uncaptured (id int);
"""
BIG = "repeat(md5({}::text), 80)"


class Session:
    """One session of the application, and what its open transaction did.

    A statement that fails, or that would wait for the other session, ends its transaction by a rollback.
    """

    def __init__(self, history: History, number: int) -> None:
        self.history = history
        self.number = number
        self.connection = history.database.connect(options="-c lock_timeout=20ms")
        self.open = False
        self.saved: tuple[int, int] | None = None
        self.events: list[Event] = []
        self.messages: list[str] = []

    def begin(self) -> None:
        if not self.open:
            self.connection.execute("BEGIN")
            self.open = True

    def change(self, sql: str, events: Callable[[list[tuple[Any, ...]]], list[Event]]) -> None:
        """A statement that returns what it changed."""
        try:
            cursor = self.connection.execute(sql)
            found = events(cursor.fetchall() if cursor.description else [])
        except psycopg.Error:
            self.forget()
            return
        self.events += found
        if not self.open:
            self.done()

    def done(self) -> None:
        """What it did is committed."""
        self.history.committed += self.events
        self.history.messages += self.messages
        self._clear()

    def forget(self) -> None:
        self.connection.execute("ROLLBACK")
        self._clear()

    def _clear(self) -> None:
        self.open, self.saved, self.events, self.messages = False, None, [], []

    def commit(self) -> None:
        if self.open:
            self.connection.execute("COMMIT")
            self.done()

    def save(self) -> None:
        if self.open:
            self.connection.execute("SAVEPOINT s")
            self.saved = (len(self.events), len(self.messages))

    def back(self) -> None:
        if self.saved is not None:
            self.connection.execute("ROLLBACK TO SAVEPOINT s")
            del self.events[self.saved[0] :], self.messages[self.saved[1] :]
            self.saved = None

    def prepare(self) -> None:
        if not self.open or self.messages:
            return
        name = f"p{next(self.history.names)}_{self.history.database.name}"
        self.connection.execute(f"PREPARE TRANSACTION '{name}'")
        self.history.prepared.append((name, self.events))
        self._clear()


class History:
    """What two sessions do, and what they say of it."""

    def __init__(self, database: PostgresDatabase) -> None:
        self.database = database
        database.execute(SETUP)
        self.names = iter(range(10**6))
        self.committed: list[Event] = []
        self.messages: list[str] = []
        self.prepared: list[tuple[str, list[Event]]] = []
        self.sessions = (Session(self, 0), Session(self, 1))

    def close(self) -> None:
        for session in self.sessions:
            session.connection.close()

    def settle(self) -> None:
        """Nothing is open any more."""
        for session in self.sessions:
            session.commit()
        while self.prepared:
            self.end_prepared(commit=True)

    def end_prepared(self, *, commit: bool) -> None:
        if self.prepared:
            name, events = self.prepared.pop(0)
            self.database.execute(f"{'COMMIT' if commit else 'ROLLBACK'} PREPARED '{name}'")
            self.committed += events if commit else []

    def do(self, step: tuple[Any, ...]) -> None:
        what, number, *rest = step
        session = self.sessions[number]
        getattr(self, what)(session, *rest)

    def begin(self, session: Session) -> None:
        session.begin()

    def commit(self, session: Session) -> None:
        session.commit()

    def rollback(self, session: Session) -> None:
        session.forget()

    def savepoint(self, session: Session) -> None:
        session.save()

    def back_to_savepoint(self, session: Session) -> None:
        session.back()

    def prepare(self, session: Session) -> None:
        session.prepare()

    def finish(self, session: Session, commit: bool) -> None:
        self.end_prepared(commit=commit)

    def insert(self, session: Session, table: str, key: int, big: bool) -> None:
        value = BIG.format(key) if big else "NULL"
        session.change(
            f"INSERT INTO {table} VALUES ({key}, 'new', {value}) RETURNING id",
            lambda rows: [("c", table, str(id)) for (id,) in rows],
        )

    def update(self, session: Session, table: str, key: int, big: bool, to: int) -> None:
        value = f", big = {BIG.format(key + 100)}" if big else ""
        session.change(
            f"UPDATE {table} SET v = 'v{to}'{value} WHERE id = {key} RETURNING id",
            lambda rows: [("u", table, str(id)) for (id,) in rows],
        )

    def new_key(self, session: Session, table: str, key: int, to: int) -> None:
        """In a partitioned table the row may go to another partition, which is a delete and an insert."""

        def events(rows: list[tuple[Any, ...]]) -> list[Event]:
            if table == "parts" and (key < 5) != (to < 5):
                return [event for _ in rows for event in (("d", table, str(key)), ("c", table, str(to)))]
            return [("u", table, str(to)) for _ in rows]

        session.change(f"UPDATE {table} SET id = {to} WHERE id = {key} RETURNING id", events)

    def delete(self, session: Session, table: str, key: int) -> None:
        session.change(
            f"DELETE FROM {table} WHERE id = {key} RETURNING id", lambda rows: [("d", table, str(key)) for _ in rows]
        )

    def truncate(self, session: Session, table: str) -> None:
        session.change(f"TRUNCATE {table}", lambda _: [("t", table, None)])

    def copy(self, session: Session, table: str, keys: int) -> None:
        """Many rows whose records have one place in the log."""
        first = 1000 + 10 * next(self.names)
        try:
            with session.connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                for n in range(keys):
                    copy.write_row((first + n, "copied", None))
        except psycopg.Error:
            session.forget()
            return
        session.events += [("c", table, str(first + n)) for n in range(keys)]
        if not session.open:
            session.done()

    def alter(self, session: Session, table: str, add: bool) -> None:
        name = f"more_{next(self.names)}"
        session.change(f"ALTER TABLE {table} ADD COLUMN {name} text", lambda _: [])
        if not add:
            session.change(f"ALTER TABLE {table} DROP COLUMN {name}", lambda _: [])

    def elsewhere(self, session: Session) -> None:
        session.change("INSERT INTO uncaptured VALUES (1)", lambda _: [])

    def message(self, session: Session, transactional: bool) -> None:
        content = f"message {next(self.names)}"
        session.connection.execute(f"SELECT pg_logical_emit_message({transactional}, 'model', '{content}')")
        if transactional:
            session.messages.append(content)
            if not session.open:
                session.done()
        else:
            self.messages.append(content)


class Reading:
    """The source, which reads and reads again."""

    def __init__(self, database: PostgresDatabase, options: dict[str, Any]) -> None:
        given = {
            **database.options,
            "slot": f"slot_{database.name}",
            "tables": "public.t,public.whole,public.parts,public.heap",
            "messages": "true",
            **{name: str(value) for name, value in options.items()},
        }
        self.make = lambda: source_named("postgresql", given)
        self.run = SourceRun(self.make)
        self.mirror = Mirror(KEYS)
        self.rows: list[dict[str, Any]] = []
        self.last: tuple[Offset, Offset, list[Any]] | None = None

    def batch(self) -> bool:
        start = self.run.offset
        rows = self.run.batch()
        if self.run.offset == start:
            return False
        assert start.commit <= self.run.offset.commit
        for row in rows:
            if row["op"] in PLACED:
                commit = row["position"].partition("/")[0]
                assert start.commit < commit <= self.run.offset.commit, (start.commit, commit, self.run.offset.commit)
        # The batch before has been delivered.
        self.run.source.acknowledge(start)
        self.last = (start, self.run.offset, rows)
        self.mirror.replay(rows)
        self.rows += rows
        return True

    def again(self) -> None:
        """The last batch once more, by a process that knows nothing; both must have the same rows in the same order."""
        if self.last is not None:
            start, end, rows = self.last
            fresh = SourceRun(self.make)
            start, end = (Offset.from_json(json.loads(offset.to_text())) for offset in (start, end))
            streamed = [row for row in rows if row["op"] != "r"]
            assert [row for row in fresh.rows(start, end) if row["op"] != "r"] == streamed

    def restart(self) -> None:
        self.run.source = self.make()

    def all(self) -> None:
        while self.batch():
            pass


key, session, table = st.integers(0, 9), st.integers(0, 1), st.sampled_from(TABLES)
changes = st.one_of(
    st.tuples(st.just("insert"), session, table, key, st.booleans()),
    st.tuples(st.just("update"), session, table, key, st.booleans(), key),
    st.tuples(st.just("new_key"), session, table, key, key),
    st.tuples(st.just("delete"), session, table, key),
    st.tuples(st.just("copy"), session, table, st.integers(1, 40)),
)
rare = st.one_of(
    st.tuples(st.just("truncate"), session, table),
    st.tuples(st.just("alter"), session, table, st.booleans()),
    st.tuples(st.just("message"), session, st.booleans()),
    st.tuples(st.just("elsewhere"), session),
)
edges = st.one_of(
    st.tuples(st.sampled_from(["begin", "commit", "savepoint", "back_to_savepoint", "rollback", "prepare"]), session),
    st.tuples(st.just("finish"), session, st.booleans()),
)
reads = st.sampled_from([("read",), ("read",), ("again",), ("restart",)])
steps = st.lists(st.one_of(changes, changes, changes, rare, edges, edges, reads), min_size=10, max_size=50)
cuts = st.fixed_dictionaries(
    {
        "max_commits_per_trigger": st.sampled_from([0, 1, 2]),
        "max_wal_per_batch": st.sampled_from([1, 300, 5_000, 10**8]),
        "min_wal_per_reader": st.sampled_from([1, 200, 10**8]),
        "max_readers": st.sampled_from([1, 3]),
        "provide_transaction_metadata": st.sampled_from(["true", "false"]),
    }
)


def check(server: PostgresServer, steps: list[tuple[Any, ...]], cut: dict[str, Any]) -> None:
    database = server.new_database()
    try:
        with closing(History(database)) as history:
            reading = Reading(database, cut)
            reading.all()
            for step in steps:
                if step[0] == "read":
                    reading.batch()
                elif step[0] == "again":
                    reading.again()
                elif step[0] == "restart":
                    reading.restart()
                else:
                    history.do(step)
            history.settle()
            reading.all()
            reading.again()
            compare(history, reading)
    finally:
        database.drop()


def compare(history: History, reading: Reading) -> None:
    rows = sorted(reading.rows, key=lambda row: row["position"])
    positions = [row["position"] for row in rows if row["op"] in ("r", *PLACED)]
    assert [row["position"] for row in reading.rows if row["op"] in ("r", *PLACED)] == positions, (
        "not in the log's order"
    )
    # The rows of a chunk that is read beside the stream share one.
    own = [row["position"] for row in rows if row["op"] in ("r", *PLACED) and row["snapshot"] != "incremental"]
    assert len(set(own)) == len(own)
    events = [event(row) for row in rows if row["op"] in "cudt"]
    assert events == history.committed
    contents = [base64.b64decode(dict(row["source"])["content"]).decode() for row in rows if row["op"] == "message"]
    assert sorted(contents) == sorted(history.messages)
    assert reading.mirror.differences(held(history.database, TABLES)) == {}


def event(row: dict[str, Any]) -> Event:
    image = dict(row["after"] or row["before"] or {})
    return row["op"], row["table"]["name"], image.get("id")


@pytest.mark.parametrize(
    "histories", [examples(15), pytest.param(400, marks=pytest.mark.soak)], ids=["a few histories", "many histories"]
)
def test_each_committed_change_comes_once_and_nothing_else(postgres_server: PostgresServer, histories: int) -> None:
    @settings(
        max_examples=histories, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False
    )
    @given(steps, cuts)
    @example(
        steps=[
            ("insert", 0, "t", 1, True), ("begin", 0), ("update", 0, "t", 1, False, 2), ("read",), ("savepoint", 0),
            ("new_key", 0, "t", 1, 7), ("back_to_savepoint", 0), ("new_key", 0, "t", 1, 8), ("prepare", 0),
            ("insert", 1, "parts", 4, True), ("new_key", 1, "parts", 4, 6), ("read",), ("finish", 0, True),
            ("again",), ("truncate", 0, "parts"), ("copy", 1, "heap", 20), ("alter", 0, "whole", True),
            ("message", 0, False), ("restart",), ("message", 1, True),
        ],
        cut={"max_commits_per_trigger": 1, "max_wal_per_batch": 300, "min_wal_per_reader": 1, "max_readers": 3},
    )  # fmt: skip
    @example(
        steps=[
            ("truncate", 0, "t"), ("insert", 0, "t", 0, False), ("alter", 0, "heap", True), ("delete", 0, "t", 0),
            ("truncate", 1, "heap"), ("copy", 0, "t", 22), ("elsewhere", 0),
        ],
        cut={
            "max_commits_per_trigger": 1, "max_wal_per_batch": 5_000, "min_wal_per_reader": 10**8, "max_readers": 1,
            "provide_transaction_metadata": "false",
        },
    )  # fmt: skip
    def of(steps: list[tuple[Any, ...]], cut: dict[str, Any]) -> None:
        check(postgres_server, steps, cut)

    of()
