"""When the commits of a window were made."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class CommitTimes:
    """When commits were made, for the commits of one window.

    Args:
        commits: LSNs as text, ascending.
        times: the instants, as many.
    """

    commits: pa.Array
    times: pa.Array

    @classmethod
    def unknown(cls) -> CommitTimes:
        return cls(pa.array([], pa.string()), pa.array([], pa.timestamp("us", tz="UTC")))

    def of(self, commits: pa.Array) -> pa.Array:
        """The instant of each commit; null where the server's mapping has lost it."""
        return self.times.take(pc.index_in(commits, value_set=self.commits))
