"""Rule: a table that was not captured for a time is read again as a whole, and the end of that read says which rows of
a mirror are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.captured_shop import Db2Database, OracleDatabase, SqlServerDatabase, closing

from headrace.testing.captured_database import CapturedDatabase, replay

T = "id int not null primary key, v varchar(20)"
SERVERS = {"sqlserver": SqlServerDatabase, "db2": Db2Database, "oracle": OracleDatabase}


@pytest.fixture(params=SERVERS)
def database(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[CapturedDatabase]:
    with closing(SERVERS[request.param](tmp_path / "server")) as made:
        made.create("t", T, [(n, "one") for n in range(5)])
        made.create("u", T)
        yield made


def _off(database: CapturedDatabase, left: tuple[int, ...]) -> None:
    database.disable("t")
    for n in range(5):
        if n not in left:
            database.delete("t", f"id = {n}")
    for n in left:
        if n > 4:
            database.insert("t", n, "new")


def _dropped(database: CapturedDatabase, left: tuple[int, ...]) -> None:
    if database.source == "db2":
        database.disable("t")
    database.execute(f"DROP TABLE {database.schema}.t")


def _on(database: CapturedDatabase, left: tuple[int, ...]) -> None:
    database.enable("t")


def _made_again(database: CapturedDatabase, left: tuple[int, ...]) -> None:
    database.create("t", T, [(n, "again") for n in left])


WAYS = {"switched off and on": (_off, _on), "dropped and made again": (_dropped, _made_again)}


@pytest.mark.smoke("*--*-seen while it was away-some rows", "sqlserver-*-between two looks-some rows")
@pytest.mark.parametrize("left", [(0, 3, 9), ()], ids=["some rows", "no row"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen while it was away", "between two looks"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("chunks", [{}, {"snapshot_chunk_rows": 1, "snapshot_chunks_per_batch": 1}], ids=["", "chunks"])
def test_a_mirror_of_a_table_that_comes_back_has_its_rows_and_no_others(
    database: CapturedDatabase, left: tuple[int, ...], seen: bool, way: str, chunks: dict[str, int]
) -> None:
    run = database.run(**chunks)
    rows = run.all()
    database.update("t", "v = 'two'", "id = 3")
    database.capture()
    rows += run.all()
    go, come_back = WAYS[way]
    go(database, left)
    database.insert("u", 1, "x")
    database.capture()
    if seen:
        rows += run.all()
    come_back(database, left)
    database.insert("u", 2, "x")
    database.capture()
    rows += run.all()
    held = {key[1] for key in replay(rows) if key[0] == "t"}
    assert held == {f'["{n}"]' for n in left}
