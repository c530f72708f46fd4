"""A commit to an Iceberg table that lands only where nothing else has landed since the table was looked at.

Iceberg checks a commit for conflicts in data, and not for what its summary says: an append lands after any other one.
So a batch is written to a branch that begins where the table was looked at, and the table's own branch is then moved
forward to it, which Iceberg refuses unless it still stands there.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from headrace.sinks.lake.table import TargetMoved

MAIN = "main"
_PREFIX = "headrace_"
_REFUSED = ("IllegalArgumentException", "CommitFailedException", "PendingUpdateFailedException", "ValidationException")
"""How Iceberg says that the table has moved, or that the branch is gone."""


class Branch:
    """A branch of a table that holds one batch until it is published. Runs in the driver's JVM.

    Args:
        table: Iceberg's own table.
        label: the table, for messages.
    """

    def __init__(self, table: Any, label: str) -> None:
        self.name = f"{_PREFIX}{uuid4().hex}"
        self._table = table
        self._label = label

    def begin(self, base: int | None) -> None:
        """Make the branch where the table was looked at. Drops what failed attempts left; one that still writes fails.

        Args:
            base: the snapshot that the table stood at; None where it had none.

        Raises:
            TargetMoved: it is gone, or there is one by now.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        table = self._table
        table.refresh()
        try:
            left = [str(name) for name in table.refs() if str(name).startswith(_PREFIX)]
            change = table.manageSnapshots()
            for name in left:
                change = change.removeBranch(name)
            if base is not None:
                change.createBranch(self.name, base).commit()
            else:
                # The branch gets an empty snapshot to begin with, which is a change by itself.
                if left:
                    change.commit()
                table.manageSnapshots().createBranch(self.name).commit()
        except (PySparkException, Py4JJavaError) as failure:
            raise moved(failure, self._label) from failure
        table.refresh()
        if base is None and table.currentSnapshot() is not None:
            raise _not_there(self._label)

    def publish(self) -> int:
        """Move the table to the branch's end, and drop the branch; the table's snapshot from then on.

        Raises:
            TargetMoved: the table does not stand any more where the branch begins. Nothing was moved.
        """
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        table = self._table
        table.refresh()
        try:
            table.manageSnapshots().fastForwardBranch(MAIN, self.name).removeBranch(self.name).commit()
        except (PySparkException, Py4JJavaError) as failure:
            raise moved(failure, self._label) from failure
        table.refresh()
        return int(table.currentSnapshot().snapshotId())


def moved(failure: Any, label: str) -> Exception:
    """A refusal in our words; any other failure of Java as it is."""
    # PySpark has classes of its own for some of Java's.
    java = getattr(failure, "java_exception", None)
    kind = type(failure).__name__ if java is None else str(java.getClass().getSimpleName())
    return _not_there(label) if kind in _REFUSED else failure


def _not_there(label: str) -> TargetMoved:
    return TargetMoved(
        f"The {label} changed while a batch was written; nothing of it is in the table.",
        remedy="Make sure that nothing else writes to it. You can repeat the batch.",
    )
