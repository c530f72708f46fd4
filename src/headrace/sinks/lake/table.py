"""One lakehouse table that mirrors a source table: who owns it, how it gets its structure, how a commit is known.

Everything but a commit is metadata: it comes before the data of a batch and may be repeated without harm.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headrace import faultpoints
from headrace.apply.column_names import Step, renames_in_order
from headrace.changes.typed import literal, quote
from headrace.errors import SchemaError, SinkError
from headrace.sinks.base import BatchId
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.evolution import KEEPING, Evolution, TargetColumn, evolution, key_before, known_names
from headrace.sinks.lake.catalog import Namespace
from headrace.sinks.lake.indexed import Files, IndexedTable, LogUnreadable
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.layout import LakePlan, TargetLayout, column_ddl, key_names
from headrace.sinks.lake.sessions import SMALL_TARGET
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table_files import explained
from headrace.sinks.lake.variants import VARIANT
from headrace.sinks.lake.whole_rows import CollectedRows, WholeRows
from headrace.versions import require_known, require_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.apply import TableProfile

_LOG = logging.getLogger(__name__)
OWNER = "headrace.owner"
KEY = "headrace.key"
SOURCE_TABLE = "headrace.table"
PHASE = "headrace.phase"
STORED_AS = "headrace.stored-as"
DELETED = "headrace.deleted-column"
FORMAT_VERSION = "headrace.format-version"
"""The version of a target's layout, from its creation on; without it 1. Raised where an earlier release would write
what is there wrong, and only in the targets of which that is true."""
_NEWEST_FORMAT = 1
_PREFIX = "headrace."
_PROPERTIES = frozenset([OWNER, KEY, SOURCE_TABLE, PHASE, STORED_AS, DELETED, FORMAT_VERSION])
"""The properties that this release and earlier ones give a target. A release does not write to one that has another."""
INITIAL = "initial"
STREAMING = "streaming"
_TOO_LARGE = "the keys of its rows need more memory than 'index_memory' allows"
_KEY_NAME = re.compile(r"`((?:[^`]|``)*)`")


TRIES = 4
"""How often a batch is written to a table in which others land meanwhile; Iceberg itself tries as often."""


class TargetMoved(SinkError):
    """Something landed in a table after it was looked at; nothing of the batch did. To be looked at again."""


class LakeTable(ABC):
    """A table of one lakehouse format. `session` is its own, so that its settings reach no other table's commit.

    Args:
        session: reads and writes the table.
        namespace: where it lies in a catalogue, to be created with it; None where that is there for certain.
        indexes: the keys of the tables that this process writes; None where all batches go by MERGE.

    Attributes:
        title: the format's name as people write it.
        rules: the names of columns that it takes.
    """

    title: ClassVar[str]
    rules: ClassVar[ColumnRules]

    def __init__(
        self,
        session: SparkSession,
        *,
        namespace: Namespace | None = None,
        indexes: Bounded[IndexedTable[Any]] | None = None,
    ) -> None:
        self.session = session
        self.namespace = namespace
        self.indexes = indexes

    @property
    @abstractmethod
    def sql_name(self) -> str:
        """The table as Spark SQL names it."""

    @property
    @abstractmethod
    def location(self) -> str:
        """The table as messages name it: a path, or the name in a catalog."""

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether the table is there."""

    @abstractmethod
    def companion(self, suffix: str) -> LakeTable:
        """A table of Headrace's own beside this one."""

    @abstractmethod
    def commit(self, batch: BatchId | None, source: str, work: Callable[[], None], *, by_index: bool = False) -> None:
        """Do the work, one data commit, which carries the batch's number; without a batch it carries none.

        Args:
            batch: it.
            source: the source table's name.
            work: to be done.
            by_index: it is no SQL, but `replace_by_index`.
        """

    def amend(self, work: Callable[[], object]) -> None:
        """Do the work, a commit without a batch that comes between `plan` and the batch's own commit."""
        work()

    @abstractmethod
    def has(self, batch: BatchId, source: str) -> bool:
        """Whether the table has this batch already, as far as can be told before the commit."""

    @abstractmethod
    def has_rows_of_others(self, batch: BatchId, source: str) -> bool:
        """Whether somebody else may have brought rows since the last commit of a batch's owner, or without one since
        the table is there.

        While all batches ask, and land only where nothing came in between, a table of a first snapshot has its
        owner's rows only.
        """

    @abstractmethod
    def create(self, layout: TargetLayout, properties: Mapping[str, str]) -> None:
        """Create the table, empty; harmless where it is there."""

    @abstractmethod
    def column_type(self, kind: str) -> str:
        """The type that the format gives a column of this Spark type."""

    @abstractmethod
    def widens(self, old: str, new: str) -> bool:
        """Whether a column of the one type can be made one of the other, wider one, without rewriting data."""

    @abstractmethod
    def properties_for(self, evolution: Evolution, columns: tuple[TargetColumn, ...]) -> Mapping[str, str]:
        """Properties that the table needs before it can take these names and changes."""

    @abstractmethod
    def release(self) -> None:
        """Let go of connections that its session holds for it alone. The table is not used afterwards."""

    @property
    def flat_source(self) -> str:
        """What a target of flat rows, which name no source table, remembers as its source: itself."""
        return self.location

    @abstractmethod
    def commits_since_compaction(self, most: int) -> int:
        """How many commits brought data since the table was last compacted; all if it never was.

        Args:
            most: more than this need not be told apart.
        """

    @abstractmethod
    def compact(self) -> None:
        """Rewrite small files as larger ones, in commits without a batch. Changes no row."""

    @abstractmethod
    def vacuum(self, hours: int) -> None:
        """Delete files that only versions older than so many hours have."""

    def limited(self, table: TableProfile, layout: TargetLayout) -> TableProfile:
        """The source's table, which knows of more values that the target has no place for."""
        return table

    def append(self, rows: DataFrame) -> bool:
        """Add rows, which have the table's columns, where nobody else has brought any; within `commit`.

        Returns:
            Whether that was done. Where the format takes part in an append by SQL nothing has happened.

        Raises:
            TargetMoved: somebody else's rows came since `plan`.
        """
        return False

    def replace(self, change: WholeRows) -> bool:
        """Do it in one commit without a MERGE, where the format can. Otherwise nothing has happened."""
        return False

    def no_index(self, properties: Mapping[str, str] | None = None) -> str | None:
        """Why small batches of whole rows go by MERGE, as the end of a sentence; empty where they go by an index of
        keys (`replace_by_index`). None where no index is kept of it. Logged once for each table and reason.

        Args:
            properties: of a table that is to be created; without them it is there.
        """
        if self.indexes is None:
            return None
        reason = self._no_index(properties) if self.indexes.most else "'index_memory' is 0"
        reason = reason or ("" if properties is not None else self._left_out)
        if reason and properties is None:
            say_no_index(self.label, reason)
        return reason

    @abstractmethod
    def _no_index(self, properties: Mapping[str, str] | None) -> str:
        """What of the table is against an index, and of the session."""

    def _known_rows(self, find: Callable[[], IndexedTable[Files] | None]) -> IndexedTable[Files] | None:
        """What an index knows of the table; None where it can't know its rows, which is logged once.

        Args:
            find: reads the index on; None where its keys need more memory than there may be.
        """
        reason = _TOO_LARGE
        try:
            if (known := find()) is not None:
                return known
        except (LogUnreadable, OSError, KeyError, pa.ArrowException) as failure:
            reason = _unreadable(failure)
        self._leave_out(reason)
        return None

    def _done(self, commit: Callable[[], None], folder: Folder) -> bool:
        """Make a commit by the index; False where rows of the table can't be read, which is logged once.

        Raises:
            SinkError: a file can't be written; nothing has happened.
        """
        try:
            with explained(folder):
                commit()
            return True
        except LogUnreadable as failure:
            self._leave_out(_unreadable(failure))
            return False

    def _leave_out(self, reason: str) -> None:
        say_no_index(self.label, reason)
        self._left_out = reason

    @cached_property
    def _left_out(self) -> str:
        """Why this batch goes by MERGE though the table could have an index, as the end of a sentence; empty for no
        reason."""
        return _TOO_LARGE if self.indexes is not None and self.indexes.is_left_out(self.location) else ""

    def replace_by_index(self, change: CollectedRows) -> bool:
        """Do it in one commit without a Spark job, where an index of keys is there. Otherwise nothing has happened."""
        return False

    @abstractmethod
    def add_files(self, actions: Sequence[str], rows: DataFrame | None) -> str:
        """Make files that workers wrote the table's, together with more rows, within `commit`.

        Args:
            actions: what the commit says of each (`WrittenFile.action`).
            rows: rows with the table's columns, that no file has.

        Returns:
            Why that can't be, as the end of a sentence; then nothing has happened. Empty where it is done.
        """

    @abstractmethod
    def data_folder(self) -> Folder | str:
        """The folder of its data files; or why Python does not reach it, as the end of a sentence."""

    @abstractmethod
    def names_of_files(self) -> set[str]:
        """The names, without folders, of all files that its retained versions have.

        Raises:
            OSError: its log can't be read.
            ValueError: likewise.
        """

    @property
    def label(self) -> str:
        """`Delta table /lake/t`."""
        return f"{self.title} table {self.location}"

    def size(self) -> int | None:
        """How many bytes its data files have; None where that is not known."""
        return None

    @cached_property
    def small(self) -> bool:
        """Whether the table, as it was when this was first asked, is read as a whole by a few quick tasks."""
        held = self.size()
        return held is not None and held <= SMALL_TARGET

    def read(self) -> DataFrame:
        return self.session.table(self.sql_name)

    def merge_source(self, frame: DataFrame) -> DataFrame:
        """A frame as a MERGE into this table can take it, also where it reads this table."""
        return frame

    def properties(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self.session.sql(f"show tblproperties {self.sql_name}").collect()}

    def kept_key(self) -> tuple[str, ...]:
        return _names_in(self.properties().get(KEY, ""))

    def types(self) -> dict[str, str]:
        return {column.name: column.dataType.simpleString() for column in self.read().schema}

    def padded(self) -> frozenset[str]:
        """The columns of the existing table whose texts Spark pads with blanks when it reads them."""
        return frozenset()

    def plan(
        self,
        layout: TargetLayout,
        batch: BatchId | None,
        *,
        takeover: bool,
        behavior: str,
        rows: bool,
        first_read: bool,
        first_read_ends: bool,
        append_only: bool,
        steps: tuple[Step, ...] = (),
    ) -> LakePlan:
        """Compare the target with what the batch needs. Changes nothing.

        Rows are appended while the table was created by this owner and holds rows of its first snapshot only, and
        always with `append_only`. The phase is over before the first other row is written.

        Args:
            layout: how the target must look.
            batch: who writes; without one anybody may.
            takeover: whether the target may be another's.
            behavior: what to do when schemas differ (see `evolution`).
            rows: whether the batch has rows of this table.
            first_read: all of them were read by the source's first snapshot.
            first_read_ends: it ends in this batch.
            append_only: the rows need not be merged in any case.
            steps: what is known to have happened to the names of the source's columns.

        Raises:
            SinkError: another pipeline or checkpoint, or another source table, has this target; or there is no
                namespace for it, and none may be created.
            SchemaError: the target can't carry the structure.
            NewerRelease: a later release made the target, or changed it.
        """
        own_names = (*(column.name for column in layout.own), *layout.beside)
        self.rules.refuse(layout.source, (column.name for column in layout.columns), own_names)
        owner = batch.owner if batch is not None else None
        identity = {KEY: layout.key_names, SOURCE_TABLE: layout.source, STORED_AS: layout.stored_as}
        mark = False
        if owner is not None:
            identity[OWNER] = owner
        exists = self.exists
        changes = Evolution()
        if exists:
            properties = self.properties()
            self._refuse_newer(properties)
            steps = () if behavior in KEEPING else steps
            have, own_columns = self.types(), frozenset(column.name for column in layout.own)
            known = known_names(
                have, [c.name for c in layout.columns], own_columns=own_columns, steps=steps, source=layout.source
            )
            keys = {layout.key_names, key_names(key_before(layout.key, known))}
            self._refuse_stranger(properties, layout, owner, takeover, keys)
            self._refuse_other_mark(properties, layout)
            self._refuse_padded_key(layout)
            mark = bool(layout.deleted) and DELETED not in properties
            now = {(known.get(name) or name).lower(): kind for name, kind in have.items()}
            columns = tuple(
                TargetColumn(c.name, self.column_type(_json_type(c, layout, now)), c.comment, c.nullable)
                for c in (*layout.columns, *layout.own)
            )
            changes = evolution(
                have,
                columns,
                key=layout.key,
                own_columns=own_columns,
                behavior=behavior,
                widens=self.widens,
                source=layout.source,
                target=f"the {self.label}",
                steps=steps,
            )
        else:
            if self.namespace is not None:
                self.namespace.require(self.session, self.label)
            identity |= {DELETED: layout.deleted} if layout.deleted else {}
            properties = {**identity, PHASE: INITIAL}
            columns = layout.columns
        change = {name: value for name, value in identity.items() if properties.get(name) != value}
        initial = owner is not None and properties.get(PHASE) == INITIAL and properties.get(OWNER) == owner
        must_look_up = bool(initial and exists and rows and first_read and layout.key and layout.stored_as == "1")
        if must_look_up and batch is not None and self.has_rows_of_others(batch, layout.source):
            _LOG.info(
                "Others brought rows to the %s, so the rest of its first snapshot goes by MERGE.",
                self.label,
            )
            initial, change[PHASE] = False, STREAMING
        if initial and (first_read_ends or (rows and not first_read)):
            change[PHASE] = STREAMING
        elif not exists:
            change[PHASE] = INITIAL if owner is not None else STREAMING
        elif OWNER in change:
            change[PHASE] = STREAMING
        named = changes.add if exists else (*layout.columns, *layout.own)
        needed = self.properties_for(changes, named)
        change.update({name: value for name, value in needed.items() if properties.get(name) != value})
        done = exists and batch is not None and OWNER not in change and self.has(batch, layout.source)
        return LakePlan(
            layout,
            exists,
            append=append_only or (initial and first_read),
            done=done,
            set=change if exists else {**identity, **change, FORMAT_VERSION: str(_NEWEST_FORMAT)},
            evolution=changes,
            mark=mark,
            variants=frozenset(c.name for c in columns if c.type == VARIANT),
        )

    def plan_names(
        self,
        source: str,
        steps: tuple[Step, ...],
        owner: str | None,
        *,
        own_columns: frozenset[str],
        final: list[str] | None = None,
        stored_as: str,
        takeover: bool,
    ) -> LakePlan | None:
        """What statements about names mean for a target that is there, without more; None for nothing.

        Columns are dropped only where another gets their name.

        Args:
            source: the source table's name.
            steps: what happened to names.
            owner: who writes; None for anybody.
            own_columns: names of our columns.
            final: the source's columns now; None where they are not known.
            stored_as: see `TargetLayout`.
            takeover: whether the target may be another's.

        Raises:
            SinkError: another pipeline or checkpoint, or another source table, has this target.
            SchemaError: what was done already can't be found out.
            NewerRelease: a later release made the target, or changed it.
        """
        names = known_names(self.types(), final, own_columns=own_columns, steps=steps, source=source)
        renames = {old: new for old, new in names.items() if new is not None}
        if not renames:
            return None
        self.rules.refuse(source, renames.values(), own_columns)
        properties = self.properties()
        self._refuse_newer(properties)
        key = _names_in(properties.get(KEY, ""))
        layout = TargetLayout(source, (), tuple(renames.get(name, name) for name in key), (), stored_as=stored_as)
        self._refuse_stranger(properties, layout, owner, takeover, {layout.key_names, properties.get(KEY, "")})
        taken = {new.lower() for new in renames.values()}
        drop = tuple(name for name, new in names.items() if new is None and name.lower() in taken)
        changes = Evolution(drop=drop, rename=tuple(renames_in_order(renames)))
        new_names = tuple(TargetColumn(new, "") for new in renames.values())
        change = {KEY: layout.key_names} | dict(self.properties_for(changes, new_names))
        change = {name: value for name, value in change.items() if properties.get(name) != value}
        return LakePlan(layout, True, append=False, done=False, set=change, evolution=changes)

    def prepare(self, plan: LakePlan, *, properties: Mapping[str, str]) -> None:
        """Create or evolve the target as planned. Repeatable; of the data only a mark that is new is filled.

        Args:
            plan: what `plan` said.
            properties: further table properties of a new table.
        """
        if not plan.exists:
            if self.namespace is not None:
                self.namespace.ensure(self.session)
            self.create(plan.layout, {**properties, **plan.set})
            return
        if plan.set:
            self._set(plan.set)
        for name in plan.evolution.drop:
            self.session.sql(f"alter table {self.sql_name} drop column {quote(name)}")
        for old, new in plan.evolution.rename:
            self.session.sql(f"alter table {self.sql_name} rename column {quote(old)} to {quote(new)}")
            faultpoints.reach("sink.lake.renamed")
        for column in plan.evolution.widen:
            self.session.sql(f"alter table {self.sql_name} alter column {quote(column.name)} type {column.type}")
        if plan.evolution.add:
            columns = ", ".join(column_ddl(column, nullable=True) for column in plan.evolution.add)
            self.session.sql(f"alter table {self.sql_name} add columns ({columns})")
        if plan.mark:
            mark = quote(plan.layout.deleted)
            self.session.sql(f"update {self.sql_name} set {mark} = false where {mark} is null")
            # Only now: an attempt that failed before is done again.
            self._set({DELETED: plan.layout.deleted})

    def _set(self, properties: Mapping[str, str]) -> None:
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        self.session.sql(f"alter table {self.sql_name} set tblproperties ({pairs})")

    def _refuse_other_mark(self, properties: Mapping[str, str], layout: TargetLayout) -> None:
        known = properties.get(DELETED, "")
        if known and known != layout.deleted:
            now = f"marks them in '{layout.deleted}'" if layout.deleted else "would remove them"
            raise SinkError(
                f"The {self.label} has deleted rows that are marked in its column '{known}', and the sink {now}.",
                remedy=f"Set the sink's options 'delete_mode' to soft and 'deleted_column' to {known}, or move this "
                "one away and take a new snapshot.",
            )

    def _refuse_padded_key(self, layout: TargetLayout) -> None:
        if padded := self.padded() & {*layout.key}:
            raise SchemaError(
                f"Column '{min(padded)}' of the key of table {layout.source} is char in the {self.label}, and Spark "
                "pads its values with blanks when it reads them, so none equals the source's.",
                remedy=f"Run: ALTER TABLE {self.sql_name} ALTER COLUMN {quote(min(padded))} TYPE string",
            )

    def _refuse_newer(self, properties: Mapping[str, str]) -> None:
        what, remedy = f"The {self.label}", "Write to it with that release, or choose another target."
        require_readable(properties.get(FORMAT_VERSION), _NEWEST_FORMAT, what=what, remedy=remedy)
        ours = [name for name in properties if name.startswith(_PREFIX)]
        require_known(ours, _PROPERTIES, what=what, remedy=remedy)

    def _refuse_stranger(
        self, properties: Mapping[str, str], layout: TargetLayout, owner: str | None, takeover: bool, keys: set[str]
    ) -> None:
        known = properties.get(SOURCE_TABLE)
        if known is not None and known != layout.source:
            raise SinkError(
                f"The {self.label} mirrors {known}, not {layout.source}.",
                remedy="Give each source table its own target.",
            )
        key = properties.get(KEY, layout.key_names)
        # A log that began with a truncate did not know the key, and does not need it.
        if key not in keys and (key or layout.stored_as != "append"):
            raise SchemaError(
                f"The key of table {layout.source} is ({layout.key_names}) now, "
                f"but the {self.label} has the key ({key}).",
                remedy="Move the target away and take a new snapshot.",
            )
        stored_as = properties.get(STORED_AS, "1")
        if known is not None and stored_as != layout.stored_as:
            raise SinkError(
                f"The {self.label} is stored as SCD type {stored_as}, not {layout.stored_as}.",
                remedy="Choose another target, or move this one away and take a new snapshot.",
            )
        current = properties.get(OWNER)
        if owner is not None and current != owner and not takeover:
            whose = f"to the pipeline and checkpoint '{current}'" if current else "to no Headrace pipeline"
            raise SinkError(
                f"The {self.label} belongs {whose}, not to '{owner}'.",
                remedy="Set the sink's option 'takeover' to true if it may be taken over, or choose another target.",
            )


def _unreadable(failure: Exception) -> str:
    return f"the keys of its rows can't be read ({failure})"


@cache
def say_no_index(label: str, reason: str) -> None:
    """Log once why a table's small batches do not go by an index."""
    _LOG.info("Small batches go by MERGE into the %s, because %s.", label, reason)


def _json_type(column: TargetColumn, layout: TargetLayout, have: Mapping[str, str]) -> str:
    """A column's type; with JSON it stays what it is in the target, by lower-case name."""
    known = have.get(column.name.lower())
    return known if column.name in layout.json and known in ("string", VARIANT) else column.type


def _names_in(property: str) -> tuple[str, ...]:
    return tuple(name.replace("``", "`") for name in _KEY_NAME.findall(property))
