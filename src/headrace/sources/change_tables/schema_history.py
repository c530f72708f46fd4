"""How the schema of a captured table changes in time: its versions, and the windows of commits that each is read in.

The versions of a table are kept in the offset, because they decide how change rows are read: a replay reads a window as
it was first read, whatever was altered since. A window is cut where a version ends, so that no row with an old schema
follows one with a newer schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import CaptureError
from headrace.sources.change_tables import lsn
from headrace.sources.change_tables.captured_table import CapturedTable, NativeTypes
from headrace.sources.offset import Recent


@dataclass(frozen=True)
class SchemaVersion:
    """How a table is read from a commit on, until the next version.

    Args:
        since: the first commit whose rows follow it; zero from the beginning.
        table: what is read.
    """

    since: str
    table: CapturedTable


@dataclass(frozen=True)
class Window:
    """Commits (after, upto] of one table that are read alike.

    Args:
        table: what is read.
        after: the commit before.
        upto: the last commit.
        newest: whether no later change table of the table is known. When that one goes away, the table is newly
            captured as a new one as soon as it is captured again.
    """

    table: CapturedTable
    after: str
    upto: str
    newest: bool = True


class SchemaHistory:
    """The versions of one table that are still needed, oldest first. Immutable."""

    def __init__(self, versions: Sequence[SchemaVersion], data: list[dict[str, Any]] | None = None) -> None:
        self.versions = tuple(versions)
        self._data = data

    @classmethod
    def begin(cls, table: CapturedTable) -> SchemaHistory:
        return cls([SchemaVersion(lsn.ZERO, table)])

    @property
    def newest(self) -> CapturedTable:
        return self.versions[-1].table

    def followed_by(self, table: CapturedTable, since: str) -> SchemaHistory:
        return SchemaHistory([*self.versions, SchemaVersion(since, table)])

    def knowing(self, **facts: Any) -> SchemaHistory:
        """With other facts of the newest version that change no row that is read: what the options protect, and what
        tells a later alteration.
        """
        newest = replace(self.newest, **facts)
        if newest == self.newest:
            return self
        return SchemaHistory([*self.versions[:-1], replace(self.versions[-1], table=newest)])

    def cut_by(self, key: tuple[str, ...]) -> SchemaHistory:
        """With the chunk key that a snapshot which is not finished began with; its bounds are made of that one.

        Raises:
            CaptureError: a column of it is not read any more.
        """
        newest = self.newest
        if newest.chunk_key == key:
            return self
        missing = next((name for name in key if name not in {column.name for column in newest.schema.columns}), None)
        if missing is not None:
            raise CaptureError(
                f"Column '{missing}' of table '{newest.id.path}' is not captured any more, but its snapshot is half "
                "done and cut into chunks by it.",
                remedy="Capture it until the snapshot is done, or begin with a new checkpoint.",
            )
        return SchemaHistory([*self.versions[:-1], replace(self.versions[-1], table=replace(newest, chunk_key=key))])

    def needed_after(self, commit: str) -> SchemaHistory:
        """Without versions that no row after a commit follows."""
        first = max((i for i, version in enumerate(self.versions) if version.since <= lsn.after(commit)), default=0)
        versions = self.versions[first:]
        return SchemaHistory([replace(versions[0], since=lsn.ZERO), *versions[1:]]) if first else self

    def windows(self, after: str, upto: str) -> list[Window]:
        """The commits (after, upto], cut where the schema or the capture instance changes."""
        parts = []
        for number, version in enumerate(self.versions):
            last = number == len(self.versions) - 1
            end = upto if last else min(upto, lsn.before(self.versions[number + 1].since))
            begin = max(after, lsn.before(version.since))
            if begin < end:
                newest = version.table.instance.same(self.newest.instance)
                parts.append(Window(version.table, begin, end, newest))
        return parts

    def to_json(self) -> list[dict[str, Any]]:
        """JSON values, for the offset; made once."""
        if self._data is None:
            self._data = [{"since": version.since, **version.table.to_json()} for version in self.versions]
        return self._data

    @classmethod
    def from_json(cls, data: list[dict[str, Any]], types: NativeTypes) -> SchemaHistory:
        """Read `to_json`'s form back.

        Raises:
            NewerRelease: a later release wrote it.
        """
        tables = [CapturedTable.from_json(version, lambda native: types.native(*native)) for version in data]
        return cls([SchemaVersion(of["since"], table) for of, table in zip(data, tables, strict=True)], data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaHistory) and self.versions == other.versions

    def __hash__(self) -> int:
        return hash(self.versions)


_HISTORIES: Recent[dict[str, SchemaHistory]] = Recent()


def schema_histories(schemas: Mapping[str, Any], types: NativeTypes) -> dict[str, SchemaHistory]:
    """How each table of an offset is read; not to be changed, because it is kept for the next who asks."""
    return _HISTORIES.of(
        schemas, lambda: {path: SchemaHistory.from_json(data, types) for path, data in schemas.items()}
    )
