"""Which tests do not run on a release of Spark, and why: the only place that says so.

A test that a pattern here names is skipped with the reason, and `docs/releases.md` counts it as a gap. So is one that
meets a library of which the release has none: the sentence of the refusal, or the class that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

import pytest

from headrace.spark.releases import RELEASES, running_version

_ICEBERG = (
    "tests/cli/test_init_command.py::*",
    "tests/compat/test_pipelines.py::test_a_run_goes_on_and_its_targets_have_each_batch_once*",
    "tests/faults/test_kill_tables.py::*",
    "tests/pipeline/test_routed_targets.py::test_routes_and_transforms_reach_iceberg_a_database_and_kafka*",
    "tests/pipeline/test_shared_places.py::*",
    "tests/sinks/test_apply_changes.py::test_type_1_keeps_the_newest_row_and_a_late_change_brings_nothing_back",
    "tests/sinks/test_delta.py::*[[]iceberg*",
    "tests/sinks/test_feed_to_tables.py::*",
    "tests/sinks/test_history.py::*[[]iceberg*",
    "tests/sinks/test_iceberg.py::*",
    "tests/sinks/test_lake_columns.py::*[[]iceberg*",
    "tests/sinks/test_lake_columns.py::test_iceberg_3_keeps_deletes_as_vectors_and_replays_change_nothing",
    "tests/sinks/test_lake_columns.py::test_variants_are_refused_where_they_can_not_be_kept",
    "tests/sinks/test_pairs.py::*-iceberg]",
    "tests/sinks/test_permissions.py::test_a_folder_takes_a_file_that_is_gone_at_once*",
    "tests/sinks/test_permissions.py::test_the_database_of_a_catalogue_is_asked*",
    "tests/sinks/test_soft_deletes.py::*[[]iceberg*",
    "tests/sinks/test_upkeep.py::*[[]iceberg*",
)
_OF_4_2 = {
    "There is no clause CHANGES before Spark 4.2": ("tests/sinks/test_changes_clause.py::*",),
    "There are no declarative pipelines whose trigger drains a Python source before Spark 4.2": (
        "tests/streaming/test_read_stream_declarative.py::*",
    ),
}

GAPS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "4.0": _OF_4_2,
    "4.1": _OF_4_2,
    "4.2": {"Iceberg has no release for Spark 4.2": _ICEBERG},
    "4.3": {
        "Iceberg has no release for Spark 4.3": _ICEBERG,
        "Delta Lake has no release for Spark 4.3": (
            "tests/sources/postgresql/test_computed_columns.py::test_the_transform_that_the_remedy_prints*",
        ),
        "PySpark 4.3 has no protobuf, which Spark's own SparkEnv asks for": ("tests/pipeline/test_lost_rows.py::*",),
    },
}
"""By release and reason, patterns of test ids."""
_MET = {
    "delta": (
        "Delta Lake has no release for Spark",
        "delta.DefaultSource",
        "DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta",
    ),
    "iceberg": ("Iceberg has no release for Spark",),
}
"""By a library of a release, what a test says that meets that there is none."""


def gap_met(said: str) -> str:
    """Why a test that failed with these words can't pass on the installed release; empty where it should."""
    release = RELEASES[running_version()]
    for library, words in _MET.items():
        if not getattr(release, library) and any(each in said for each in words):
            return f"{library.capitalize()} has no release for Spark {running_version()}"
    return ""


class ReleaseGaps:
    """A plugin of pytest that skips what does not run on the installed release."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = (yield).get_result()
        if report.failed and (reason := gap_met(report.longreprtext)):
            path, line, _ = item.location
            report.outcome, report.longrepr = "skipped", (path, line, f"Skipped: {reason}")

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for reason, patterns in GAPS.get(running_version(), {}).items():
            for item in items:
                if any(fnmatchcase(item.nodeid, pattern) for pattern in patterns):
                    item.add_marker(pytest.mark.skip(reason=reason))
