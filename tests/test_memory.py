"""What a session and the indexes of keys take by default fits into the container in which they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sinks.lake import options
from headrace.sinks.lake.options import IndexSettings
from headrace.spark import memory, session

MB = 1 << 20

GROUPS = [
    # Lines of /proc/self/cgroup, files below /sys/fs/cgroup, and the limits that hold.
    ("0::/\n", {"memory.max": "2147483648"}, [2048 * MB]),
    ("0::/\n", {"memory.max": "max\n"}, []),
    ("0::/\n", {}, []),
    (
        "0::/jobs/one\n",
        {"memory.max": "max", "jobs/memory.max": "1073741824", "jobs/one/memory.max": "3221225472"},
        [1024 * MB, 3072 * MB],
    ),
    # In a container the path may be that of the host, of which nothing is mounted.
    ("0::/system.slice/docker-1.scope\n", {"memory.max": "1073741824"}, [1024 * MB]),
    (
        "5:cpu,cpuacct:/a\n4:memory:/a\n",
        {"memory/a/memory.limit_in_bytes": "1073741824", "memory/memory.limit_in_bytes": "9223372036854771712"},
        [1024 * MB, 9223372036854771712],
    ),
    ("1:name=systemd:/a\n", {"memory.max": "1"}, []),
]


@pytest.mark.parametrize(("lines", "files", "expected"), GROUPS)
def test_limits_of_all_groups_around_a_process_are_read(
    tmp_path: Path, lines: str, files: dict[str, str], expected: list[int]
) -> None:
    (tmp_path / "cgroup").write_text(lines)
    for name, text in files.items():
        file = tmp_path / "tree" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert sorted(memory._limits(tmp_path / "cgroup", tmp_path / "tree")) == expected


def test_where_nothing_limits_memory_it_is_the_machines() -> None:
    assert [*memory._limits(Path("/nowhere"), Path("/nowhere"))] == []
    assert memory.memory_limit() > 256 * MB


def indexes(given: dict[str, int]) -> IndexSettings:
    return IndexSettings.parse(given, owner="sink")


@pytest.mark.parametrize(
    ("limit", "heap", "index"),
    [(64_000, "4096m", 512), (4_000, "2000m", 500), (2_048, "1024m", 256), (600, "512m", 75)],
)
def test_heap_and_index_are_shares_of_the_memory_that_there_is(
    monkeypatch: pytest.MonkeyPatch, limit: int, heap: str, index: int
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: limit * MB)
    monkeypatch.delenv("SPARK_DRIVER_MEMORY", raising=False)
    monkeypatch.setattr(session, "maven_jars", lambda jars: ())
    assert session._settings([], {}, "local[2]")["spark.driver.memory"] == heap
    monkeypatch.setattr(options, "memory_limit", lambda: limit * MB)
    assert indexes({}).index_bytes == index * MB
    assert indexes({"index_memory": 7}).index_bytes == 7 * MB
    assert indexes({"index_memory": 0}).index_bytes == 0


def test_the_environment_variable_of_spark_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "900m")
    monkeypatch.setattr(session, "maven_jars", lambda jars: ())
    assert session._settings([], {}, "local[2]")["spark.driver.memory"] == "900m"
    assert session._settings([], {"spark.driver.memory": "1g"}, "local[2]")["spark.driver.memory"] == "1g"
