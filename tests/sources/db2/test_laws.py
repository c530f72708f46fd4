"""Rule: whatever is written, captured, pruned and restarted in between, the rows that come make the source's tables."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.smoke import examples
from tests.support.captured_shop import Db2Database, Db2WithImages, closing

from headrace.testing.captured_database import replay

KEY, VALUE = st.integers(0, 4), st.sampled_from(["a", "b", None])
CHANGE = st.one_of(
    st.tuples(st.just("insert"), KEY, VALUE),
    st.tuples(st.just("update"), KEY, VALUE),
    st.tuples(st.just("delete"), KEY, st.none()),
    st.tuples(st.just("move"), KEY, KEY),
)
STEP = st.one_of(
    st.lists(CHANGE, min_size=1, max_size=4).map(lambda changes: ("commit", changes)),
    st.sampled_from([("capture", None), ("batch", None), ("restart", None), ("prune", None), ("undone", None)]),
)


def change(cursor: Any, held: dict[int, Any], changes: list[Any]) -> None:
    """Do what can be done; `held` is what the table holds."""
    for kind, key, value in changes:
        if kind == "insert" and key not in held:
            cursor.execute("INSERT INTO SHOP.T VALUES (?, ?)", (key, value))
            held[key] = value
        elif kind == "update" and key in held:
            cursor.execute("UPDATE SHOP.T SET V = ? WHERE ID = ?", (value, key))
            held[key] = value
        elif kind == "delete" and key in held:
            cursor.execute("DELETE FROM SHOP.T WHERE ID = ?", (key,))
            del held[key]
        elif kind == "move" and key in held and value not in held:
            cursor.execute("UPDATE SHOP.T SET ID = ? WHERE ID = ?", (value, key))
            held[value] = held.pop(key)


@settings(max_examples=examples(25), deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, max_size=14), chunk=st.integers(1, 3), together=st.booleans(), images=st.booleans())
def test_any_interleaving_leaves_the_mirror_equal(tmp_path_factory, steps, chunk, together, images):
    kind = Db2WithImages if images else Db2Database
    with closing(kind(tmp_path_factory.mktemp("server"))) as database:
        database.create("t", "id int not null primary key, v varchar(5)", [(1, "a"), (3, "b")])
        held = {1: "a", 3: "b"}
        run = database.run(
            snapshot_chunk_rows=chunk, snapshot_chunks_per_batch=1, provide_transaction_metadata=str(together).lower()
        )
        rows = []
        for kind, changes in steps:
            if kind == "commit":
                with database.transaction() as cursor:
                    change(cursor, held, changes)
            elif kind == "undone":
                storage = database.emulated.session.storage
                storage.autocommit = False
                change(database.emulated.cursor(), dict(held), [("insert", 4, "x"), ("delete", 1, None)])
                storage.rollback()
                storage.autocommit = True
            elif kind == "capture":
                database.capture()
            elif kind == "batch":
                rows += run.batch()
            elif kind == "restart":
                run.restarted()
            else:
                # Only what was delivered is pruned, as a retention that is long enough does.
                database.capture()
                rows += run.all()
                database.clean()
        database.capture()
        rows += run.all()
        assert {key: row["v"] for (_, key), row in replay(rows).items()} == {
            f'["{key}"]': value for key, value in held.items()
        }
