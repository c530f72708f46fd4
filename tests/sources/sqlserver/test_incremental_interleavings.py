"""Law: whatever writes come between the steps of an ad-hoc snapshot and its stream, the mirror ends up equal."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.incremental_runs import (
    Gates,
    Run,
    ahead,
    contents,
    create,
    execute,
    in_source,
    mirror,
    rows_of,
    signal_table,
)

from headrace_emulators.sqlserver import EmulatedServer

WRITES = st.one_of(
    st.tuples(st.just("UPDATE dbo.t SET v = v + 1 WHERE id = {}"), st.integers(0, 5)),
    st.tuples(st.just("DELETE FROM dbo.t WHERE id = {}"), st.integers(0, 5)),
    st.tuples(
        st.just("INSERT INTO dbo.t SELECT {0}, 100 WHERE NOT EXISTS (SELECT 1 FROM dbo.t WHERE id = {0})"),
        st.integers(0, 7),
    ),
).map(lambda write: write[0].format(write[1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), WRITES),
        st.tuples(st.just("gate"), WRITES),
        st.tuples(st.sampled_from(["ask", "capture", "batch", "replay", "restart"]), st.just("")),
    ),
    max_size=14,
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A database in which the first snapshot is done, as a file to be copied."""
    folder = tmp_path_factory.mktemp("begun")
    with EmulatedServer(folder).create_database("shop", clock=ahead) as database:
        signal_table(database)
        create(database, "t", "id int not null primary key, v int", [(n, 0) for n in range(5)])
        run = Run(database)
        rows = run.all()
    return folder, run.offset, rows


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_any_interleaving_of_writes_and_batches_leaves_the_mirror_equal(begun, tmp_path_factory, steps):
    folder, offset, first = begun
    copy = tmp_path_factory.mktemp("run") / "server"
    shutil.copytree(folder, copy)
    with EmulatedServer(copy).database("shop", clock=ahead) as database, pytest.MonkeyPatch.context() as patch:
        gates = Gates(database)
        patch.setattr("headrace.faultpoints.reach", gates.reach)
        run = Run(database)
        run.offset = offset
        held = mirror(first)
        for step, statement in steps:
            if step == "write":
                database.execute(statement)
            elif step == "gate":
                gates.at["source.incremental.read"] = [statement]
            elif step == "ask":
                execute(database, "dbo.t")
            elif step == "capture":
                database.capture()
            elif step == "restart":
                run.restarted()
            else:
                start = run.offset
                rows = run.batch() or []
                mirror(rows, held)
                if step == "replay" and rows:
                    mirror(rows_of(run.source, start, run.offset), held)
        database.capture()
        mirror(run.all(), held)
        assert contents(held, "t") == in_source(database, "t")
