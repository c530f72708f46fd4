"""Rows of a first snapshot are added without a look for their keys only while nobody else brings rows to the table."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.lake_mirror import Mirror, T, made

from headrace import faultpoints
from headrace.testing.change_history import Batch

READ = {n: f"read {n}" for n in range(40)}
FOREIGN = "insert into {} values (25, 'foreign', null), (100, 'foreign', null)"
"""A key that the snapshot has too, and one that it has not, so that its row is gone when the snapshot ends."""


@pytest.fixture(params=["delta", "iceberg"])
def mirror(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Mirror:
    return made(request.param, spark, tmp_path / "lake")


def part(*ids: int, last: bool = False) -> Batch:
    batch = Batch(T)
    for id in ids:
        batch.add("r", T, 1, {"id": str(id), "a": READ[id]}, snapshot="last" if last and id == ids[-1] else "true")
    return batch


def merges(caplog: pytest.LogCaptureFixture) -> int:
    return sum("the rest of its first snapshot goes by MERGE" in record.message for record in caplog.records)


def test_a_snapshot_alone_in_its_table_is_added(mirror: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mirror.bring(part(*range(20)))
    mirror.compact()
    mirror.sql("delete from {} where false")
    # A process that was started later has its own rows only, too.
    again = mirror.successor()
    again.number = mirror.number
    again.bring(part(*range(20, 40), last=True))
    assert (again.content(), merges(caplog)) == (sorted(READ.items(), key=repr), 0)


def test_rows_that_came_between_two_batches_are_found(mirror: Mirror, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    mirror.bring(part(*range(10)))
    mirror.sql(FOREIGN)
    mirror.bring(part(*range(10, 20))).bring(part(*range(20, 30))).bring(part(*range(30, 40), last=True))
    assert (mirror.content(), merges(caplog)) == (sorted(READ.items(), key=repr), 1)


@pytest.mark.smoke("delta-2-*", "iceberg-1-*")
@pytest.mark.parametrize("point", ["before_commit", "last step"])
@pytest.mark.parametrize("batches", [1, 2])
def test_rows_that_come_while_a_batch_is_written_are_found(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, point: str, batches: int
) -> None:
    if batches == 2:
        mirror.bring(part(*range(20)))
    waiting = [FOREIGN]

    def meanwhile() -> None:
        if waiting:
            mirror.sql(waiting.pop())

    if point == "last step":
        owner, name = mirror.last_step
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: (meanwhile(), own(*given))[1])
    else:
        monkeypatch.setattr(faultpoints, "reach", lambda at: meanwhile() if at.endswith(point) else None)
    mirror.bring(part(*range(20 * (batches - 1), 40), last=True))
    assert (mirror.content(), waiting) == (sorted(READ.items(), key=repr), [])
