"""Tests of which `make test` runs a few cases, and `make test-all` all of them.

It stands in place: `@pytest.mark.smoke(*TABLES)` at a class that runs a contract suite, with the names of the tests
that `make test` runs, or `@pytest.mark.smoke("delta-*")` at a test with parameters, with the ids of its cases. All
others get the marker `system`. The whole suite runs in `make test` on one target or source of each kind.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase

import pytest

WHOLE = "HEADRACE_TEST_ALL_EXAMPLES"
"""The variable of the environment by which `make test-all` asks for all examples."""
TABLES = (
    "test_a_late_change_does_not_win_and_a_later_snapshot_row_does",
    "test_a_new_column_is_added",
    "test_a_target_of_another_owner_is_refused_unless_taken_over",
    "test_after_one_table_failed_a_retry_gives_every_table_the_batch_once",
    "test_of_two_writers_of_one_batch_one_lands",
)
"""Of `TableSinkContract`: a merge, a structure, an owner, and each batch once whatever fails or writes beside it."""
CAPTURE = (
    "test_a_batch_is_a_whole_number_of_commits",
    "test_a_signal_reads_a_table_again_beside_the_stream",
    "test_a_snapshot_that_was_stopped_goes_on_where_it_was",
    "test_changes_come_in_commit_order_with_both_images",
    "test_changes_during_the_snapshot_win_over_what_was_read",
    "test_cleaned_changes_stop_the_run_before_a_row_is_read",
    "test_the_same_offsets_give_the_same_rows",
)
"""Of `CaptureContract`: a snapshot beside changes, commits as a whole, the same rows again, what was lost, a signal."""


def examples(whole: int) -> int:
    """How many examples hypothesis tries: in `make test` a third of what it tries in `make test-all`."""
    return whole if os.environ.get(WHOLE) else -(-whole // 3)


class Smoke:
    """A plugin of pytest that reads the marker."""

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("smoke")
        if mark is None or not isinstance(item, pytest.Function):
            return
        if not any(fnmatchcase(name, chosen) for chosen in mark.args for name in _names(item)):
            item.add_marker("system")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a name of no test and no case: `make test` would pass without what it stands for."""
        names: dict[int, tuple[pytest.Mark, set[str]]] = {}
        for item in items:
            if isinstance(item, pytest.Function) and (mark := item.get_closest_marker("smoke")):
                names.setdefault(id(mark), (mark, set()))[1].update(_names(item))
        for mark, known in names.values():
            # One name may be all that the command line chose.
            unknown = [name for name in mark.args if not any(fnmatchcase(one, name) for one in known)]
            if unknown and len(known) > 2:
                raise pytest.UsageError(f"A marker smoke names {', '.join(unknown)}, and there are {sorted(known)}.")


def _names(item: pytest.Function) -> tuple[str, ...]:
    return (item.originalname, item.callspec.id) if hasattr(item, "callspec") else (item.originalname,)
