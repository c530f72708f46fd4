"""Rule: a lakehouse table that a later release made or changed is refused before anything is written. No Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headrace.errors import NewerRelease
from headrace.sinks.base import BatchId
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.evolution import Evolution, TargetColumn
from headrace.sinks.lake.layout import TargetLayout
from headrace.sinks.lake.table import FORMAT_VERSION, KEY, OWNER, SOURCE_TABLE, LakeTable

BATCH = BatchId("p", "c", 1)
LAYOUT = TargetLayout("db.s.t", (TargetColumn("id", "int"),), ("id",), ())


class Told(LakeTable):
    """A table that is there or not, as it is told.

    Args:
        said: its properties; null where it is not there.
    """

    title = "Told"
    rules = ColumnRules("Told")

    def __init__(self, said: Mapping[str, str] | None) -> None:
        self.said = said
        self.namespace = None

    @property
    def sql_name(self) -> str:
        return "told"

    @property
    def location(self) -> str:
        return "told"

    @property
    def exists(self) -> bool:
        return self.said is not None

    def properties(self) -> dict[str, str]:
        return dict(self.said or {})

    def types(self) -> dict[str, str]:
        return {"id": "int"}

    def companion(self, suffix: str) -> LakeTable:
        return self

    def commit(self, batch: BatchId | None, source: str, work: Callable[[], None]) -> None:
        work()

    def has_rows_of_others(self, batch: BatchId, source: str) -> bool:
        return False

    def has(self, batch: BatchId, source: str) -> bool:
        return False

    def create(self, layout: TargetLayout, properties: Mapping[str, str]) -> None:
        self.said = properties

    def column_type(self, kind: str) -> str:
        return kind

    def widens(self, old: str, new: str) -> bool:
        return False

    def properties_for(self, evolution: Evolution, columns: tuple[TargetColumn, ...]) -> Mapping[str, str]:
        return {}

    def release(self) -> None:
        """It holds no connection."""

    def _no_index(self, properties: Mapping[str, str] | None) -> str:
        return ""

    def add_files(self, actions: Sequence[str], rows: Any) -> str:
        raise AssertionError("nobody wrote files for it")

    def data_folder(self) -> str:
        return "is no folder"

    def names_of_files(self) -> set[str]:
        return set()

    def commits_since_compaction(self, most: int) -> int:
        return 0

    def compact(self) -> None:
        raise AssertionError("nobody asked to compact it")

    def vacuum(self, hours: int) -> None:
        raise AssertionError("nobody asked to vacuum it")


def planned(table: Told, *, takeover: bool = False) -> Any:
    return table.plan(
        LAYOUT,
        BATCH,
        takeover=takeover,
        behavior="add",
        rows=True,
        first_read=True,
        first_read_ends=False,
        append_only=False,
    )


OURS = {OWNER: BATCH.owner, KEY: "`id`", SOURCE_TABLE: "db.s.t"}


def test_a_new_table_says_the_version_of_its_layout_and_the_next_batch_finds_it() -> None:
    table = Told(None)
    table.prepare(planned(table), properties={"delta.appendOnly": "false"})
    assert table.properties()[FORMAT_VERSION] == "1"
    planned(table)


def test_a_table_of_a_release_that_said_no_version_goes_on_without_one() -> None:
    assert FORMAT_VERSION not in planned(Told(OURS)).set


@pytest.mark.parametrize("takeover", [False, True])
@pytest.mark.parametrize(
    ("later", "sentence"),
    [
        ({FORMAT_VERSION: "2"}, "The Told table told has format version 2, and Headrace .* reads versions up to 1"),
        ({"headrace.later": "x"}, "The Told table told has 'headrace.later', which Headrace .* does not know"),
    ],
)
def test_a_table_of_a_later_release_is_refused_also_where_it_may_be_taken_over(
    later: dict[str, str], sentence: str, takeover: bool
) -> None:
    with pytest.raises(NewerRelease, match=sentence):
        planned(Told({**OURS, **later}), takeover=takeover)
