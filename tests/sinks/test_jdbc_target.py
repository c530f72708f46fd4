"""Rule: a target table equals the model after every batch, has the whole of a batch or nothing, and takes it once.

Real servers, fed by hand: no Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sinks.databases import Running
from tests.sinks.staged_rows import Expected, Folded, Target

from headrace.changes import Column, LogicalType, TableSchema
from headrace.errors import NewerRelease, SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.sinks.jdbc.target import StagedBatch
from headrace.testing.change_history import table
from headrace.testing.faults import InjectedFault
from headrace.testing.waiting import PATIENCE, until

T = table()
PAIR = table("pair", key=("k", "id"), id="int32", a="string", k="string", b="int64")
BAG = table("bag", key=(), id="int32", a="string", raw="bytes", doc="json")
HAND_FED = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

TEXTS = st.sampled_from(["", "x", "X", "x ", "é", "O'H\\N", "a\tb\nc\r", "NULL", None])
CHANGE = st.tuples(
    st.sampled_from("uuupd"), st.integers(0, 9), TEXTS, st.sampled_from([None, 0, -(2**63)]), st.booleans()
)
BATCHES = st.lists(
    st.tuples(
        st.dictionaries(st.tuples(st.sampled_from(["x", "X", "x "]), st.integers(1, 2)), CHANGE, max_size=5),
        st.sampled_from([None, None, None, 5]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


def folded(number: int, drawn: dict[Any, Any], truncated: int | None) -> tuple[list[Folded], str | None]:
    """What `fold` could have made. Positions of a batch may be older than what the target holds."""
    rows = []
    at = None if truncated is None else f"{number:02}:{truncated}"
    for (k, id), (op, order, text, value, cut) in drawn.items():
        position = f"{max(0, number - order % 3):02}:{order}"
        if at is not None and position <= at:
            continue
        present = frozenset({"a"} if cut else {"b"}) if op == "p" else None
        rows.append(Folded(op, position, {"k": k, "id": id, "a": text, "b": value}, present))
    return rows, at


@pytest.mark.slow
@HAND_FED
@given(batches=BATCHES)
def test_a_table_with_a_key_equals_the_model(database: Running, batches: list[Any]) -> None:
    target, model = Target(database, PAIR), Expected(PAIR)
    target.drop()
    for number, (drawn, truncated, again) in enumerate(batches, 1):
        rows, at = folded(number, drawn, truncated)
        for expected in (True, False) if again else (True,):
            written = target.write(rows, number, truncate_at=at, partial=True, insert_partial=True)
            assert written == expected
        model.write(rows, at)
        assert target.content() == model.content()


@pytest.mark.slow
@HAND_FED
@given(
    batches=st.lists(
        st.dictionaries(
            st.tuples(st.sampled_from([1, None]), TEXTS, st.sampled_from([b"", b"\x00\xff", None])),
            st.integers(-2, 3).filter(bool),
            max_size=4,
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_table_without_a_key_equals_the_model(database: Running, batches: list[Any]) -> None:
    target, model = Target(database, BAG), Expected(BAG)
    target.drop()
    for number, drawn in enumerate(batches, 1):
        rows = []
        for location, ((id, text, raw), n) in enumerate(drawn.items()):
            row = {"id": id, "a": text, "raw": raw, "doc": '{"b": 1.0, "a": 1}'}
            if n < 0:
                rows.append(Folded("d", f"{number}/{location}/", row, occurrences=-n))
            rows += [Folded("i", f"{number}/{location}/{copy}", row, occurrences=1) for copy in range(n)]
        for _ in range(2):
            target.write(rows, number)
        model.write(rows)
        assert target.content() == model.content()


def put(key: int, a: str | None, position: str, **more: Any) -> Folded:
    return Folded("u", position, {"id": key, "a": a, "b": "y"}, **more)


def test_positions_compare_byte_by_byte_whatever_the_collation(database: Running) -> None:
    target = Target(database, T)
    target.write([put(1, "later", "1:"), put(2, "later", "1a/"), put(3, "earlier", "1/0")], 1)
    target.write([put(1, "earlier", "10"), put(2, "earlier", "1/"), put(3, "later", "10")], 2)
    assert [row[1] for row in target.content()] == ["later"] * 3


def test_keys_that_differ_in_case_accent_or_a_space_are_different(database: Running) -> None:
    schema = table("texts", key=("id",), id="string", a="string")
    keys = ["a", "A", "a ", " a", "\u00e1", "a\u0301", "", "\U0001f600"]
    target = Target(database, schema)
    target.write([Folded("u", "1", {"id": key, "a": key}) for key in keys])
    assert target.content() == sorted(((key, key) for key in keys), key=repr)
    target.write([Folded("d", "2", {"id": "A"}), Folded("d", "3", {"id": "\u00e1"})], 1)
    assert {row[0] for row in target.content()} == set(keys) - {"A", "\u00e1"}


def test_a_row_whose_key_holds_null_stops_and_nothing_is_written(database: Running) -> None:
    by_index = replace(PAIR, columns=tuple(replace(column, nullable=True) for column in PAIR.columns))
    target = Target(database, by_index)
    target.write([Folded("u", "1", {"k": "x", "id": 1, "a": "a", "b": 1})], 1)
    new = Folded("u", "2", {"k": "y", "id": 1, "a": "a", "b": 1})
    with pytest.raises(SinkError, match=r"has NULL in its key \(k, id\)"):
        target.write([new, Folded("u", "3", {"k": "y", "id": None, "a": "a", "b": 1})], 2)
    # A delete takes nothing away that could be there.
    assert target.write([Folded("d", "4", {"k": "y", "id": None})], 3)
    assert len(target.content()) == 1


def test_rows_of_an_attempt_that_failed_never_count(database: Running) -> None:
    target = Target(database, T)
    target.write([put(1, "x", "1")], 0, strays=[put(1, "stray", "9"), put(2, "stray", "9")])
    assert target.content() == [(1, "x", "y")]
    bag = Target(database, BAG)
    bag.write([], 0, strays=[Folded("i", "9", {"id": 1}, occurrences=1)])
    assert bag.content() == []


def test_a_partial_update_without_its_row_stops_and_nothing_is_written(database: Running) -> None:
    target = Target(database, T)
    target.write([put(1, "x", "1")], 0)
    a = frozenset({"a"})
    lost = [put(1, "w", "2"), Folded("p", "3", {"id": 77, "a": "q"}, a)]
    with pytest.raises(SchemaError, match=r"change of table db\.dbo\.t does not carry all columns.* no row of its key"):
        target.write(lost, 1, partial=True)
    assert target.content() == [(1, "x", "y")]
    # After a delete in the same batch there is nothing to keep.
    with pytest.raises(SchemaError, match="no row of its key"):
        target.write([Folded("p", "3", {"id": 1, "a": "q"})], 1, partial=True)
    # A change that is too late is not looked at.
    assert target.write([Folded("p", "0", {"id": 1, "a": "q"})], 1, partial=True)
    assert target.write(lost, 2, partial=True, insert_partial=True)
    assert target.content() == [(1, "w", "y"), (77, "q", None)]


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def armed(points: str) -> Path:
        folder = tmp_path / f"faults-{points.partition('=')[0]}"
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        monkeypatch.setenv("HEADRACE_FAULT_DIR", str(folder))
        monkeypatch.setenv("HEADRACE_FAULTPOINTS", points)
        return folder

    return armed


POINTS = [
    ("sink.jdbc.staged", 1),
    *(("sink.jdbc.before_statement", n) for n in (1, 2)),
    ("sink.jdbc.before_commit", 1),
    ("sink.jdbc.after_commit", 1),
]


@pytest.mark.parametrize("schema", [PAIR, BAG], ids=["key", "no key"])
@pytest.mark.parametrize(("point", "nth"), POINTS)
def test_whatever_stops_the_program_a_table_has_the_whole_batch_or_nothing_and_a_retry_gives_it_once(
    database: Running, arm: Callable[[str], Path], schema: Any, point: str, nth: int
) -> None:
    target, model = Target(database, schema), Expected(schema)
    first, second = (
        ([put_pair(1, "x", "1"), put_pair(2, "y", "2")], [Folded("d", "3", {"k": "k", "id": 1}), put_pair(3, "z", "4")])
        if schema.key
        else ([bagged("1"), bagged("2")], [Folded("d", "3", {"id": 1}, occurrences=1), bagged("4", a="z")])
    )
    target.write(first, 0)
    model.write(first)
    before = model.content()
    model.write(second)
    folder = arm(f"{point}=raise@{nth}")
    with pytest.raises(InjectedFault):
        target.write(second, 1, partial=bool(schema.key))
    assert (folder / f"{point}.hit").exists()
    assert target.content() == (model.content() if point.endswith("after_commit") else before)
    assert target.write(second, 1, partial=bool(schema.key)) == (not point.endswith("after_commit"))
    assert target.content() == model.content()
    progress = target.progress()
    assert progress is not None and progress.batch == 1


def put_pair(id: int, a: str, position: str) -> Folded:
    return Folded("u", position, {"k": "k", "id": id, "a": a, "b": id})


def bagged(position: str, a: str | None = None) -> Folded:
    return Folded("i", position, {"id": 1, "a": a}, occurrences=1)


def test_two_writers_of_one_batch_write_it_once(database: Running, arm: Callable[[str], Path], tmp_path: Path) -> None:
    target = Target(database, BAG)
    target.write([bagged("1")], 0)
    gate = tmp_path / "gate"
    arm(f"sink.jdbc.before_commit=hold:{gate}")
    outcomes: list[bool] = []
    first = threading.Thread(target=lambda: outcomes.append(target.write([bagged("2")], 1)))
    first.start()
    reached = gate.with_name("gate.reached")
    waiting = threading.Event()
    while not reached.exists():
        assert first.is_alive()
        waiting.wait(0.01)
    other = threading.Thread(target=lambda: outcomes.append(_apply_again(target)))
    other.start()
    gate.touch()
    first.join(PATIENCE)
    other.join(PATIENCE)
    assert sorted(outcomes) == [False, True]
    assert len(target.content()) == 2


def test_rows_that_a_second_writer_took_away_are_missed(database: Running) -> None:
    target = Target(database, BAG)
    target.write([bagged("1")], 0)

    def second() -> None:
        with closing(database.at.connect()) as connection:
            tables, mirror = target.tables(connection)
            tables.create_stage(connection, mirror)

    with pytest.raises(SinkError, match="taken away by another writer"):
        target.write([bagged("2"), bagged("3")], 1, meanwhile=second)
    assert len(target.content()) == 1
    assert target.write([bagged("2"), bagged("3")], 1)
    assert len(target.content()) == 3


CONNECTIONS = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'headrace'",
        "SELECT pg_terminate_backend({})",
    ),
    "mariadb": ("SELECT id FROM information_schema.processlist WHERE db = '{}'", "KILL {}"),
}


@pytest.mark.parametrize("point", ["sink.jdbc.staged", "sink.jdbc.before_statement", "sink.jdbc.before_commit"])
def test_a_connection_that_is_cut_leaves_the_table_as_it_was_and_a_retry_gives_the_batch_once(
    database: Running, arm: Callable[[str], Path], tmp_path: Path, point: str
) -> None:
    target = Target(database, BAG)
    target.write([bagged("1")], 0)
    gate = tmp_path / "gate"
    arm(f"{point}=hold:{gate}")
    failures: list[BaseException] = []

    def write() -> None:
        try:
            target.write([bagged("2")], 1)
        except BaseException as failure:
            failures.append(failure)

    writing = threading.Thread(target=write)
    writing.start()
    until(gate.with_name("gate.reached").exists, "the writer is held")
    listed, ended = CONNECTIONS[database.kind]
    server = {"postgresql": "postgres", "mariadb": None}[database.kind]
    found = database.server.run(listed.format(database.database), database=server)
    numbers = [line[0] for line in found] if isinstance(found, list) else found.split()
    assert numbers
    for number in numbers:
        database.server.run(ended.format(number), database=server)
    gate.touch()
    writing.join(PATIENCE)
    [failure] = failures
    assert isinstance(failure, SinkError)
    assert "You can repeat the batch" in str(failure)
    assert len(target.content()) == 1
    assert target.write([bagged("2")], 1)
    assert len(target.content()) == 2


def _apply_again(target: Target) -> bool:
    """The same batch, from a program that had loaded it too when the other one committed."""
    with closing(target.running.at.connect()) as connection:
        tables, mirror = target.tables(connection)
        return tables.apply(connection, mirror, BatchId("p", "c", 1), StagedBatch(("0",)))


def test_a_target_of_another_owner_is_refused_unless_taken_over(database: Running) -> None:
    target = Target(database, T)
    target.write([put(1, "x", "5")], 7)
    with pytest.raises(SinkError, match="belongs to the pipeline and checkpoint 'p/c', not to 'q/c'"):
        target.write([put(1, "mine", "6")], 0, owner="q")
    assert target.write([put(1, "mine", "6")], 0, owner="q", takeover=True)
    assert target.content() == [(1, "mine", "y")]
    with pytest.raises(SinkError, match="'takeover'"):
        target.write([put(1, "x", "9")], 8)


@pytest.mark.parametrize("takeover", [False, True])
def test_a_target_of_a_later_release_is_refused_and_those_beside_it_go_on(database: Running, takeover: bool) -> None:
    target, other = Target(database, T), Target(database, PAIR)
    for one in (target, other):
        one.write([], 1)
    database.run("UPDATE _headrace_progress SET format_version = 2 WHERE source_table LIKE '%.t'")
    with pytest.raises(NewerRelease, match=r"has format version 2, and Headrace .* reads versions up to 1"):
        target.write([put(1, "x", "1")], 2, takeover=takeover)
    other.write([], 2)


def test_a_target_that_was_taken_over_meanwhile_is_left_alone(database: Running) -> None:
    target = Target(database, T)
    target.write([put(1, "x", "5")], 7)
    target.write([put(1, "mine", "6")], 0, owner="q", takeover=True)
    with pytest.raises(SinkError, match="belongs to the pipeline and checkpoint 'q/c', not to 'p/c'"):
        _apply_again(target)


def test_a_table_that_is_not_ours_is_refused_and_can_be_taken_over(database: Running) -> None:
    text = "text" if database.kind == "postgresql" else "longtext"
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, a {text}, b {text})",
        "INSERT INTO t VALUES (1, 'old', 'y'), (2, 'old', 'y')",
    )
    target = Target(database, T)
    with pytest.raises(SinkError, match="to no Headrace pipeline"):
        target.write([put(1, "x", "1")])
    target.write([put(1, "x", "1")], takeover=True)
    assert target.content() == [(1, "x", "y"), (2, "old", "y")]


def test_equal_rows_of_a_table_taken_over_are_deleted_one_by_one(database: Running) -> None:
    text, raw = ("text", "bytea") if database.kind == "postgresql" else ("longtext", "longblob")
    doc = "json" if database.kind == "postgresql" else "longtext"
    database.run(
        f"CREATE TABLE bag (id int, a {text}, raw {raw}, doc {doc})",
        "INSERT INTO bag (id) VALUES (1), (1), (1), (2)",
    )
    target = Target(database, BAG)
    target.write([Folded("d", "1", {"id": 1}, occurrences=2)], takeover=True)
    assert [row[0] for row in target.content()] == [1, 2]


def test_two_source_tables_do_not_share_a_target(database: Running) -> None:
    Target(database, T).write([put(1, "x", "1")])
    with pytest.raises(SinkError, match=r"mirrors db\.dbo\.t, not other\.dbo\.t"):
        Target(database, table(database="other")).write([put(1, "x", "1")], 1)


def test_a_batch_without_data_creates_the_table(database: Running) -> None:
    target = Target(database, T)
    assert not target.write(None)
    assert target.content() == []
    assert target.write([put(1, "x", "1")])


def test_a_unique_index_beside_the_key_is_refused_where_it_would_take_one_row_for_another(database: Running) -> None:
    target = Target(database, PAIR)
    target.write([put_pair(1, "x", "1")])
    database.run("CREATE UNIQUE INDEX other ON pair (b)")
    if database.kind == "mariadb":
        with pytest.raises(SchemaError, match="a unique index beside its key"):
            target.write([put_pair(2, "x", "2")], 1)
    else:
        with pytest.raises(SinkError, match="can't be written"):
            target.write([Folded("u", "2", {"k": "k", "id": 2, "a": "q", "b": 1})], 1)
    assert len(target.content()) == 1


KILLED = """
import sys
sys.path.append(sys.argv[1])
from headrace.testing.change_history import table
from tests.sinks.databases import Running
from tests.sinks.staged_rows import Folded, Target

class Server:
    port = int(sys.argv[3])

row = Folded("u", "2", {"id": 1, "a": "new", "b": None})
Target(Running(sys.argv[2], Server(), sys.argv[4]), table()).write([row, Folded("u", "3", {**row.row, "id": 2})], 1)
"""


@pytest.mark.parametrize("point", ["sink.jdbc.staged", "sink.jdbc.before_commit", "sink.jdbc.after_commit"])
def test_a_program_that_is_killed_leaves_nothing_half_done(database: Running, tmp_path: Path, point: str) -> None:
    target = Target(database, T)
    target.write([put(1, "x", "1")])
    environment = {
        **os.environ,
        "HEADRACE_FAULTPOINTS": f"{point}=kill",
        "HEADRACE_FAULT_DIR": str(tmp_path),
        "HEADRACE_FAULT_SPARE": str(os.getsid(0)),
    }
    root = Path(__file__).parents[2]
    where = [str(root / "tests" / "apply"), database.kind, str(database.server.port), database.database]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *where], env=environment, cwd=root, start_new_session=True, timeout=PATIENCE
    )
    assert killed.returncode == -signal.SIGKILL
    after = [(1, "new", None), (2, "new", None)]
    assert target.content() == (after if point.endswith("after_commit") else [(1, "x", "y")])
    rows = [Folded("u", "2", {"id": 1, "a": "new"}), Folded("u", "3", {"id": 2, "a": "new"})]
    assert target.write(rows, 1) == (not point.endswith("after_commit"))
    assert target.content() == after


def test_columns_are_added_and_widened_and_other_changes_are_refused(database: Running) -> None:
    narrow = table("w", id="int32", n="int16", d="decimal(10,2)", at="timestamp(0)")
    wide = table("w", id="int64", n="int64", d="decimal(14,4)", at="timestamp(3)", more="string")
    target = Target(database, narrow)
    texts = {"d": pa.string()}
    target.write([Folded("u", "1", {"id": 1, "n": 1, "d": "1.50", "at": "2020-01-01 00:00:00"})], types=texts)
    row = {"id": 2**40, "n": 2**40, "d": "0.0001", "at": "2020-01-01 00:00:00.123", "more": "x"}
    Target(database, wide).write([Folded("u", "2", row)], 1, types=texts)
    found = database.content("w")
    assert [(line[0], line[1], str(line[2]), line[4]) for line in found] == [
        (1, 1, "1.5000", None),
        (2**40, 2**40, "0.0001", "x"),
    ]
    # A structure that the target holds with room to spare needs nothing.
    older = table("w", id="int32", n="int16", d="decimal(10,2)", at="timestamp(0)", more="string")
    plan = Target(database, older).plan(1)
    assert (plan.add, plan.widen, plan.done) == ((), (), True)
    for changed, message in (
        ({"n": "string"}, "Column 'n' of table db.dbo.w is "),
        ({"d": "decimal(14,5)"}, "Column 'd' of table db.dbo.w is "),
        (
            {"at": "instant(3)"} if database.kind == "postgresql" else {"at": "date"},
            "Column 'at' of table db.dbo.w is ",
        ),
    ):
        kinds = {column.name: str(column.logical) for column in wide.columns} | changed
        with pytest.raises(SchemaError, match=message):
            Target(database, table("w", **kinds)).plan(2)
    with pytest.raises(SchemaError, match="has no column 'more' any more"):
        Target(database, narrow).plan(2)


def test_a_table_is_created_with_key_and_comments(database: Running) -> None:
    columns = (
        Column("id", 1, LogicalType("int64"), nullable=True),
        Column("line", 2, LogicalType("string"), length=20, comment="it's \\ the line"),
        Column("b", 3, LogicalType("string"), nullable=False, default="x"),
    )
    schema = TableSchema(T.id, columns, ("line", "id"), comment="the 'lines'")
    Target(database, schema).write(None)
    null = database.ask(
        "SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 't' "
        f"AND table_schema = {'current_schema()' if database.kind == 'postgresql' else 'database()'}"
    )
    assert dict(null) == {"id": "NO", "line": "NO", "b": "YES", "_headrace_position": "YES"}
    if database.kind == "postgresql":
        told = database.ask("SELECT obj_description('t'::regclass), col_description('t'::regclass, 2)")
    else:
        told = database.ask(
            "SELECT table_comment, column_comment FROM information_schema.tables JOIN information_schema.columns "
            "USING (table_schema, table_name) WHERE table_schema = database() AND column_name = 'line'"
        )
    assert told == [("the 'lines'", "it's \\ the line")]


@pytest.mark.parametrize(
    ("kind", "value"), [("string", "x" * 5000), ("int8", 10**4), ("int32", None), ("date", "2020-13-01")]
)
def test_a_value_that_does_not_fit_its_key_stops_without_being_shown(
    database: Running, kind: str, value: object
) -> None:
    schema = table("t", id=kind, a="string")
    if kind in ("string", "int8") and database.kind == "postgresql":
        schema = table("t", id="uuid" if kind == "string" else "int16", a="string")
        value = value if kind == "string" else 10**5
    types = {"id": pa.int64() if isinstance(value, int) or value is None else pa.string()}
    target = Target(database, schema)
    target.write(None)
    with pytest.raises(SchemaError, match=r"A value of table db\.dbo\.t does not fit its column") as caught:
        target.write([Folded("u", "1", {"id": value})], 1, types=types)
    assert str(value) not in str(caught.value) or value is None
    assert target.content() == []


NOT_HELD: dict[str, list[tuple[str, object, Any]]] = {
    "postgresql": [
        ("string", "a\0b", pa.string()),
        ("time(0)", "-01:00:00", pa.string()),
        ("time(0)", "25:00:00", pa.string()),
        ("json", "{", pa.string()),
    ],
    "mariadb": [
        ("float64", float("nan"), pa.float64()),
        ("float32", float("inf"), pa.float32()),
        ("time(0)", "839:00:00", pa.string()),
    ],
}


def test_what_a_database_can_not_hold_stops_the_batch(database: Running) -> None:
    for number, (column, value, arrow) in enumerate(NOT_HELD[database.kind]):
        target = Target(database, table(f"t{number}", id="int32", v=column))
        target.write(None)
        with pytest.raises(SchemaError, match=r"A value of table db\.dbo\.t\d does not fit its column") as caught:
            target.write([Folded("u", "1", {"id": 1, "v": value})], 1, types={"v": arrow})
        assert repr(value) not in str(caught.value)
        assert target.content() == []


def test_what_only_one_database_holds_arrives_there(database: Running) -> None:
    kind = {"postgresql": "float64", "mariadb": "string"}[database.kind]
    value, arrow = {"float64": (float("-inf"), pa.float64()), "string": ("a\0b", pa.string())}[kind]
    target = Target(database, table("t", id="int32", v=kind, at="time(3)"))
    row = {"id": 1, "v": value, "at": "00:00:00.001"}
    target.write([Folded("u", "1", row)], types={"v": arrow})
    ((id, found, _),) = target.content()
    assert (id, found) == (1, value)
