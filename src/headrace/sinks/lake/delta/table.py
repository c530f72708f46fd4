"""A Delta table in a folder, or under a name that Spark's catalog knows."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.changes.table import TableId
from headrace.changes.typed import literal, quote
from headrace.errors import OptionError
from headrace.sinks.base import BatchId, LastBatch
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.evolution import Evolution, TargetColumn, holds_spark
from headrace.sinks.lake.catalog import Namespace, escaped
from headrace.sinks.lake.data_files import DataFile
from headrace.sinks.lake.delta.actions import INDEXED, INDEXED_ANYWAY, added, statistics
from headrace.sinks.lake.delta.facts import NO_VECTORS, VECTORS, TableFacts
from headrace.sinks.lake.delta.indexed import commit_change, indexed_table, takes
from headrace.sinks.lake.delta.live_files import LiveFiles, names_in_log
from headrace.sinks.lake.delta.log import BatchMark, DeltaLog, Transaction, conflicts_found, other_commits
from headrace.sinks.lake.delta.replacement import has_types, replaced
from headrace.sinks.lake.indexed import IndexedTable
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.layout import TargetLayout, column_ddl
from headrace.sinks.lake.sessions import can_clone
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.table_files import LakeFiles, PreparedTable
from headrace.sinks.lake.variants import VARIANT
from headrace.sinks.lake.whole_rows import CollectedRows, WholeRows
from headrace.spark.jars import DELTA
from headrace.spark.releases import require_library

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.apply import TableProfile


_LOG = logging.getLogger(__name__)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_OTHER_WIDENINGS = {("date", "timestamp_ntz"), ("tinyint", "double"), ("smallint", "double"), ("int", "double")}
_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_HASH_BITS = 32
_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_SMALL_SIZE = "spark.databricks.delta.optimize.minFileSize"
_COMPACTED = 128 << 20
_DATA_COMMITS = ("WRITE", "MERGE", "UPDATE", "DELETE", "STREAMING UPDATE")
_METADATA_COMMITS = 20
_NOT_BY_TEXTS = (
    "An empty text needs a new target that is not partitioned by its column ('partition_by'): every writer of Delta "
    "makes null of it there."
)
_FEATURES = {"timestamp_ntz": "timestampNtz", VARIANT: "variantType"}
"""The features that tables need for columns of these types."""
_OF_COMMANDS = (
    *("_row_dropped_", "_source_row_present_", "_target_row_present_", "_source_row_index", "_target_row_index_"),
    *("_row_id_", "_file_name_", "_input_file_name_", "_condition_", "__condition__"),
    *("__delta_internal_row_index", "__delta_internal_is_row_deleted"),
)
"""Columns that Delta's commands put beside those of a table on the way. They find rows by Spark's `_metadata`."""


@dataclass(frozen=True)
class PreparedDelta(PreparedTable):
    """A Delta table.

    Args:
        indexed: the columns that have statistics.
    """

    indexed: Sequence[str]

    @property
    def inside(self) -> list[str]:
        """Those by which there are partitions stand in the log."""
        return [name for name in self.schema.names if name not in self.partitioning.columns]

    def action(self, file: DataFile) -> dict[str, Any]:
        shown = statistics(file, self.schema, self.indexed, self.names)
        return added(file, shown, self.partitioning, self.columns, self.names)


class DeltaFiles(LakeFiles):
    sink: ClassVar[str] = "delta"
    table: ClassVar[type[PreparedTable]] = PreparedDelta


def folder_of(base: str, id: TableId) -> str:
    """The folder of a table's mirror: `<base>/<schema>/<table>`, or `<base>/<database>/<table>` without schemas."""
    parts = [escaped(part) for part in (id.schema or id.database, id.name) if part]
    return "/".join((base.rstrip("/"), *parts))


def _deltas(session: SparkSession) -> Any:
    """Delta's own class of tables.

    Raises:
        OptionError: the session was started without Delta Lake.
    """
    from delta.tables import DeltaTable as Deltas
    from py4j.java_gateway import JavaClass

    if can_clone(session) and not isinstance(getattr(session._jvm, "io.delta.tables.DeltaTable"), JavaClass):
        require_library("Delta Lake", "delta", DELTA)
        raise OptionError(
            "This Spark session was started without Delta Lake.",
            remedy=f"Start it with spark.jars.packages={DELTA} and Delta's extension and catalog, or by "
            "headrace.spark.session.spark_session with jars=(DELTA,).",
        )
    return Deltas


class DeltaTable(LakeTable):
    """A Delta table. A commit carries the batch as Delta's own transaction, which refuses to repeat it.

    Delta keeps one whole number for each application. Its upper half is the batch's number, its lower half the
    beginning of the hash of the batch's offsets. Where these are not known, and in what earlier releases wrote, it is
    the batch's number alone, under another name of the application.

    Args:
        session: reads and writes the table.
        location: its folder, or the parts of its name in a catalogue of the session.
        namespace: where a name is to be created; None where it is there for certain.
        indexes: as in `LakeTable`.
    """

    title: ClassVar[str] = "Delta"
    rules: ClassVar[ColumnRules] = ColumnRules("Delta", frozenset(["_metadata", *_OF_COMMANDS]))

    def __init__(
        self,
        session: SparkSession,
        location: str | tuple[str, ...],
        *,
        namespace: Namespace | None = None,
        indexes: Bounded[IndexedTable[LiveFiles]] | None = None,
    ) -> None:
        super().__init__(session, namespace=namespace, indexes=indexes)
        self._folder = location if isinstance(location, str) else None
        self._mark: BatchMark | None = None
        self._names: frozenset[str] = frozenset()
        self._seen: DeltaLog | None = None
        self._parts = ("delta", location) if isinstance(location, str) else location

    @property
    def sql_name(self) -> str:
        """`delta.` and the folder, or the name."""
        return ".".join(quote(part) for part in self._parts)

    @property
    def location(self) -> str:
        return ".".join(self._parts) if self._folder is None else self._folder

    @property
    def flat_source(self) -> str:
        """The name in quotes, which is what earlier releases wrote down."""
        return self.sql_name if self._folder is None else self._folder

    @property
    def exists(self) -> bool:
        if self._folder is None:
            return bool(self.session.catalog.tableExists(self.sql_name))
        return bool(_deltas(self.session).isDeltaTable(self.session, self._folder))

    def companion(self, suffix: str) -> DeltaTable:
        """A table of Headrace's own in the next folder, or with nearly the same name."""
        if self._folder is not None:
            return DeltaTable(self.session, f"{self._folder}{suffix}")
        return DeltaTable(self.session, (*self._parts[:-1], f"{self._parts[-1]}{suffix}"), namespace=self.namespace)

    def commit(self, batch: BatchId | None, source: str, work: Callable[[], None], *, by_index: bool = False) -> None:
        """Do the work, unless the table has the batch: Delta itself compares the numbers when it commits.

        Raises:
            TargetMoved: somebody else's commit got in the way; nothing of the batch is in the table.
        """
        if batch is None:
            work()
            return
        if batch.offsets and self.has(batch, source):
            return
        # SQL has no options: it takes application and version from the session's settings.
        name = _application(batch, source, batch.sink) if batch.offsets else _name_without_offsets(batch, source)
        self._mark = BatchMark(name, _version(batch), batch.number)
        self._names = frozenset(_applications(batch, source))
        try:
            with (
                _settings(self.session, {_APP_ID: name, _VERSION: str(self._mark.version)}),
                conflicts_found(self.label),
            ):
                work()
        finally:
            self._mark = None

    def has(self, batch: BatchId, source: str) -> bool:
        """Whether a commit was of this batch. Over Spark Connect the commit itself finds out, by the number alone."""
        log = self._read_newest()
        if log is None:
            return False
        for name, has_offsets in _applications(batch, source).items():
            version = log.transaction_version(name)
            if version is not None and _last_batch(version, batch, has_offsets).covers(batch, f"the {self.label}"):
                return True
        return False

    def has_rows_of_others(self, batch: BatchId, source: str) -> bool:
        """By the newest commits. In other builds of Delta, and over Spark Connect, nobody looks."""
        log = self._log
        return log is not None and log.known and log.has_rows_of_others(frozenset(_applications(batch, source)))

    def limited(self, table: TableProfile, layout: TargetLayout) -> TableProfile:
        """No empty texts in columns by which it is partitioned: every writer of Delta makes null of them."""
        facts = self.facts() if self.exists else ""
        parts = layout.partitioning.columns if isinstance(facts, str) else facts.partitions
        texts = {c.name: "^$" for c in table.schema.columns if c.name in parts and c.logical.spark_type == "string"}
        if not texts:
            return table
        in_key, other = table.remedies
        remedies = f"{in_key} {_NOT_BY_TEXTS}".lstrip(), f"{other} {_NOT_BY_TEXTS}".lstrip()
        return replace(table, lacks={**table.lacks, **texts}, remedies=remedies, target="a partition of a Delta table")

    def append(self, rows: DataFrame) -> bool:
        """Do it in a transaction that counts as having read the table: an INSERT lands after any other one."""

        def appended(commit: Transaction) -> bool:
            if not commit.plain or not has_types(rows, commit.facts.columns):
                return False
            self._refuse_rows_of_others(commit)
            commit.commit(commit.write(rows.select(*map(quote, commit.facts.columns))), self._mark)
            return True

        return self._below_commands(appended)

    def _refuse_rows_of_others(self, commit: Transaction) -> None:
        if commit.has_rows_of_others(self._names):
            raise other_commits(self.label)

    def replace(self, change: WholeRows) -> bool:
        return self._below_commands(lambda commit: replaced(commit, change, self._mark))

    def _below_commands(self, work: Callable[[Transaction], bool]) -> bool:
        """Do work with the parts that Delta's commands are made of; False where this Delta lacks one."""
        from py4j.protocol import Py4JError, Py4JJavaError

        log = self._log
        if log is None or not log.known:
            return False
        try:
            with log.transaction() as commit:
                return work(commit)
        except Py4JError as failure:
            # The commit is the last step, so nothing has happened.
            if isinstance(failure, Py4JJavaError) or "does not exist" not in str(failure):
                raise
            _LOG.warning(
                "This Delta lacks a part that Headrace knows, so MERGE writes to the %s. %s", self.label, failure
            )
            return False

    def _no_index(self, properties: Mapping[str, str] | None) -> str:
        if properties is not None:
            return "" if properties.get(VECTORS) == "true" else NO_VECTORS
        log = self._log
        return "Spark Connect reaches no files" if log is None else log.no_index

    def replace_by_index(self, change: CollectedRows) -> bool:
        """Do it below Delta's commands, with files that pyarrow writes, in a transaction of Delta's."""
        indexes = self.indexes
        return indexes is not None and self._below_commands(lambda commit: self._by_index(indexes, commit, change))

    def _by_index(self, indexes: Bounded[IndexedTable[LiveFiles]], commit: Transaction, change: CollectedRows) -> bool:
        facts = commit.facts
        if facts.no_index or not takes(change, facts):
            return False
        table = self._known_rows(lambda: indexed_table(indexes, self.location, facts, change, commit.version))
        if table is None:
            return False
        assert facts.folder is not None
        mark = self._mark
        return self._done(lambda: commit_change(table, commit, change, facts, mark, self.label), facts.folder)

    def add_files(self, actions: Sequence[str], rows: DataFrame | None) -> str:
        """Make them the table's in a transaction that counts as having read the table."""
        log = self._log
        if log is None or not log.known:
            return "this build of Delta is not known"
        with log.transaction() as commit:
            facts = commit.facts
            if reason := facts.no_files:
                return reason
            assert facts.folder is not None
            self._refuse_rows_of_others(commit)
            added = [file for action in actions for file in json.loads(action)]
            facts.folder.require({one["add"]["path"]: one["add"]["size"] for one in added})
            written = [] if rows is None else commit.write(rows)
            commit.commit([*commit.described(added), *written], self._mark)
        return ""

    def facts(self) -> TableFacts | str:
        """What the table, which is there, is; or why nobody can look, as the end of a sentence."""
        log = self._log
        if log is None:
            return "Spark Connect reaches no files"
        return log.facts if log.known else "this build of Delta is not known"

    def data_folder(self) -> Folder | str:
        facts = self.facts()
        return facts if isinstance(facts, str) else facts.folder or str(facts.storage)

    def names_of_files(self) -> set[str]:
        """As all commits and checkpoints have them that the log still has."""
        folder = self.data_folder()
        assert isinstance(folder, Folder)
        return names_in_log(folder)

    def commits_since_compaction(self, most: int) -> int:
        """Commits of data in the table's history before the last OPTIMIZE."""
        commits = 0
        # Some more, because not every commit is of data.
        history = self.session.sql(f"describe history {self.sql_name} limit {most + _METADATA_COMMITS}")
        for entry in history.select("version", "operation").orderBy("version").collect():
            if entry["operation"] == "OPTIMIZE":
                commits = 0
            elif entry["operation"] in _DATA_COMMITS:
                commits += 1
        return commits

    def compact(self) -> None:
        """OPTIMIZE: files below half of the size that the session asks for (128 MB unless it does) become such files.

        Delta's own default, 1 GB, would rewrite nearly every file, and each later MERGE rewrites what it touches.
        """
        size = int(self.session.conf.get(_FILE_SIZE, None) or _COMPACTED)
        with _settings(self.session, {_FILE_SIZE: str(size), _SMALL_SIZE: str(size // 2)}):
            self.session.sql(f"optimize {self.sql_name}")

    def vacuum(self, hours: int) -> None:
        self.session.sql(f"vacuum {self.sql_name} retain {hours} hours")

    def create(self, layout: TargetLayout, properties: Mapping[str, str]) -> None:
        """Create the table with the source's comments; every column may be null.

        In SQL, because Delta's builder takes no name with a catalogue. Delta keeps statistics of the first columns
        only; those of the key are always among them.
        """
        indexed = max((n for n, column in enumerate(layout.columns, 1) if column.name in layout.key), default=0)
        if indexed > INDEXED_ANYWAY:
            properties = {INDEXED: str(indexed), **properties}
        cluster = f" cluster by ({', '.join(map(quote, layout.cluster))})" if layout.cluster else ""
        columns = ", ".join(column_ddl(column, nullable=True) for column in (*layout.columns, *layout.own))
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        comment = f" comment {literal(layout.comment)}" if layout.comment else ""
        options = f" tblproperties ({pairs})" if pairs else ""
        self.session.sql(
            f"create table if not exists {self.sql_name} ({columns}) using delta{layout.partitioning.ddl}{cluster}"
            f"{comment}{options}"
        )

    def release(self) -> None:
        """It holds none."""

    def size(self) -> int | None:
        return None if self._log is None else self._log.size

    @property
    def _log(self) -> DeltaLog | None:
        """Delta's log of the table, which is there, as it was looked at last; None over Spark Connect."""
        return self._seen or self._read_newest()

    def _read_newest(self) -> DeltaLog | None:
        if not can_clone(self.session):
            return None
        deltas, folder = _deltas(self.session), self._folder
        log = deltas.forName(self.session, self.sql_name) if folder is None else deltas.forPath(self.session, folder)
        self._seen = DeltaLog(self.session, log._jdt.deltaLog())
        return self._seen

    def properties(self) -> dict[str, str]:
        log = self._read_newest()
        return log.facts.all_properties if log is not None and log.known else super().properties()

    def types(self) -> dict[str, str]:
        log = self._log
        if log is None or not log.known or log.facts.is_nested:
            return super().types()
        return log.facts.columns

    def padded(self) -> frozenset[str]:
        """Those that Spark knows as `char`. Over Spark Connect none are known."""
        log = self._log
        return log.facts.padded if log is not None and log.known else frozenset()

    def column_type(self, kind: str) -> str:
        return kind

    def widens(self, old: str, new: str) -> bool:
        """What Delta's type widening does: integers, float to double, decimals, a date to a local timestamp."""
        if old in _WHOLE and new.startswith("decimal"):
            # Delta asks for more digits than the values have.
            return holds_spark(new, "decimal(20,0)" if old == "bigint" else "decimal(10,0)")
        return holds_spark(new, old) or (old, new) in _OTHER_WIDENINGS

    def properties_for(self, evolution: Evolution, columns: tuple[TargetColumn, ...]) -> Mapping[str, str]:
        """Column mapping for names beyond letters and digits and for dropped and renamed columns; type widening; and
        the features of types that come later: Delta switches them on by itself only where it creates a table.
        """
        types = {column.type for column in (*evolution.add, *evolution.widen)}
        needed = {f"delta.feature.{_FEATURES[kind]}": "supported" for kind in sorted(types & _FEATURES.keys())}
        if evolution.drop or evolution.rename or any(needs_mapping(column.name) for column in columns):
            needed["delta.columnMapping.mode"] = "name"
        if evolution.widen:
            needed["delta.enableTypeWidening"] = "true"
        return needed


@contextmanager
def _settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _application(batch: BatchId, source: str, sink: str) -> str:
    """The name under which Delta keeps the last batch of an owner, with its offsets."""
    return f"headrace-offsets/{batch.owner}/{source}{'#' if sink else ''}{sink}"


def _applications(batch: BatchId, source: str) -> dict[str, bool]:
    """The names under which the last batch of an owner may stand, and whether its offsets are there too."""
    names = {_application(batch, source, sink): True for sink in (batch.sink, "")}
    return {**names, _name_without_offsets(batch, source): False}


def _name_without_offsets(batch: BatchId, source: str) -> str:
    """The name under which the number of a batch stands whose offsets are not known."""
    return f"headrace/{batch.owner}/{source}"


def _version(batch: BatchId) -> int:
    return batch.number << _HASH_BITS | int(batch.offsets[:8], 16) if batch.offsets else batch.number


def _last_batch(version: int, batch: BatchId, has_offsets: bool) -> LastBatch:
    """What the number says that Delta keeps; `has_offsets` is whether offsets are in it."""
    if not has_offsets:
        return LastBatch(version)
    number, digits = version >> _HASH_BITS, f"{version & (1 << _HASH_BITS) - 1:08x}"
    return LastBatch(number, batch.offsets if batch.offsets[:8] == digits else digits)


def needs_mapping(name: str) -> bool:
    return _PLAIN.fullmatch(name) is None
