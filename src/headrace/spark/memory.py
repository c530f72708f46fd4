"""How much memory this machine has for its processes, or the container in which they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MOST_HEAP, _LEAST_HEAP = 4096, 512
_GROUPS = Path("/proc/self/cgroup")
_TREE = Path("/sys/fs/cgroup")


def memory_limit() -> int:
    """The bytes that all processes here may take together: the least of what the machine has and what control groups
    (containers, services) allow. Makes no request."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(_GROUPS, _TREE)])


def heap() -> str:
    """The heap of a driver's JVM, as Spark writes sizes: half of the memory that there is, at most 4 GB. What is left
    is for Python's processes. Spark's own environment variable `SPARK_DRIVER_MEMORY` wins."""
    megabytes = min(_MOST_HEAP, max(_LEAST_HEAP, memory_limit() // 2 >> 20))
    return os.environ.get("SPARK_DRIVER_MEMORY") or f"{megabytes}m"


def _limits(groups: Path, tree: Path) -> Iterator[int]:
    """The limits of this process's groups and of all above them, where there are any.

    Args:
        groups: lines of number, controllers and path, as Linux has them of a process.
        tree: where the groups are mounted; in a container its own group is the root.
    """
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, file = tree, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = tree / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.strip("/")
        for folder in (group, *group.parents):
            if folder == root or root in folder.parents:
                try:
                    yield int((folder / file).read_text())
                except (OSError, ValueError):
                    # There is no such group, or its limit is the word max.
                    continue
