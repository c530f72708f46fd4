"""Rule: a change with a value that can't be converted stops the run; or, where the options say so, it alone becomes an
`error` row at its place, and all other changes are what they would be without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import db2_change_table as db2
from tests.support import sqlserver_change_table as sqlserver
from tests.support.captured_shop import Db2Database, SqlServerDatabase, closing

from headrace.errors import CaptureError
from headrace.sources.db2.types import NativeType as Db2Type
from headrace.sources.sqlserver.types import NativeType as SqlServerType
from headrace.testing.captured_database import data

TYPES = {"sqlserver": SqlServerType, "db2": Db2Type}


@pytest.fixture(autouse=True, scope="module")
def bad_values():
    """Texts that begin with 'bad' can't be converted."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in TYPES.values():

            def texts(self, values, whole=kind.texts):
                found = whole(self, values)
                if any(str(text).startswith("bad") for text in found.to_pylist()):
                    raise ValueError("it is bad")
                return found

            patch.setattr(kind, "texts", texts)
        yield


def of_sqlserver(changes, word):
    rows = []
    for number, (op, is_bad) in enumerate(changes, start=1):
        value = word if is_bad else "a"
        if op == "u":
            rows += [(1, number, 3, b"\x02", number, 1, "a"), (1, number, 4, b"\x02", number, 1, value)]
        else:
            rows.append((1, number, 2 if op == "c" else 1, b"\x03", number, 1, value))
    return rows


def of_db2(changes, word):
    rows = []
    for number, (op, is_bad) in enumerate(changes, start=1):
        value = word if is_bad else "a"
        rows += {
            "c": [f"{number} I 1 {value}"],
            "d": [f"{number} D 1 {value}"],
            "u": [f"{number} D 1 {value}", f"{number} I 1 b"],
        }[op]
    return rows


READ = {
    "sqlserver": lambda changes, word, size, **more: sqlserver.read(
        of_sqlserver(changes, word), sqlserver.PAIR, size=size, **more
    ),
    "db2": lambda changes, word, size, **more: db2.rows_of(of_db2(changes, word), size=size, **more),
}
CHANGES = st.lists(st.tuples(st.sampled_from(["c", "u", "d"]), st.booleans()), min_size=1, max_size=20)


@pytest.mark.parametrize("source", list(READ))
@given(changes=CHANGES, size=st.integers(1, 40))
def test_what_can_not_be_converted_is_an_error_row_and_all_else_stays_as_it_is(source, changes, size):
    whole = READ[source](changes, "fine", size)
    found = READ[source](changes, "bad", size, unreadable="skip")
    assert len(found) >= len(whole) == len(changes)
    by_position = {row["position"]: row for row in whole}
    good = {row["position"]: row for row, (_, is_bad) in zip(whole, changes, strict=True) if not is_bad}
    assert [row for row in found if row["op"] != "error"] == list(good.values())
    errors = [row for row in found if row["op"] == "error"]
    # A row of Db2 that an update took away has a place of its own.
    assert {row["position"] for row in errors} >= by_position.keys() - good.keys()
    assert all("bad" not in str({**row, "error": None}) for row in errors)
    assert all("with a value that can't be converted" in row["error"] for row in errors)
    assert [row["position"] for row in found] == sorted(row["position"] for row in found)


@pytest.mark.parametrize("source", list(READ))
def test_without_the_option_it_stops(source):
    with pytest.raises(CaptureError, match="can't be converted") as error:
        READ[source]([("c", False), ("c", True)], "bad", 10)
    assert "'unreadable_changes'" in error.value.remedy


@pytest.fixture(params=[SqlServerDatabase, Db2Database], ids=lambda kind: kind.source)
def database(request, tmp_path):
    with closing(request.param(tmp_path / "server")) as made:
        made.create("t", "id int not null primary key, v varchar(20)", [(1, "one")])
        yield made


@pytest.mark.parametrize("mode", ["fail", "warn", "skip"])
@pytest.mark.parametrize("together", ["false", "true"])
def test_a_stream_goes_on_behind_it(database, mode, together, caplog):
    options = {"event.processing.failure.handling.mode": mode, "provide_transaction_metadata": together}
    run = database.run(**options)
    run.all()
    start = run.offset
    with database.transaction() as cursor:
        cursor.execute(f"INSERT INTO {database.schema}.t VALUES (2, 'two')")
        cursor.execute(f"INSERT INTO {database.schema}.t VALUES (3, 'bad one')")
        cursor.execute(f"INSERT INTO {database.schema}.t VALUES (4, 'four')")
    database.capture()
    if mode == "fail":
        with pytest.raises(CaptureError, match="can't be converted"):
            run.all()
        return
    rows = run.all()
    assert [(op, row["id"]) for op, _, row in data(rows)] == [("c", "2"), ("c", "4")]
    [error] = [row for row in rows if row["op"] == "error"]
    assert (error["table"]["name"].lower(), error["after"], error["key"]) == ("t", None, None)
    places = [row["position"] for row in sorted(rows, key=lambda row: row["position"]) if row["op"] in ("c", "error")]
    assert places[1] == error["position"]
    if together == "true":
        numbers = [row["transaction"]["total_order"] for row in rows if row["op"] in ("c", "end")]
        assert numbers == [1, 2, 2]
    assert run.restarted().rows(start, run.offset) == rows
    assert ("A change is left out, at position" in caplog.text) == (mode == "warn")


def test_a_row_of_a_snapshot_always_stops(database):
    database.insert("t", 2, "bad")
    with pytest.raises(CaptureError, match="can't be converted"):
        database.run(unreadable_changes="skip").all()
