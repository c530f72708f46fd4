"""An Iceberg table under a name in a catalogue."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pyarrow as pa

from headrace import faultpoints
from headrace.changes.typed import literal, quote
from headrace.errors import SinkError
from headrace.sinks.base import BatchId, LastBatch
from headrace.sinks.column_rules import ColumnRules
from headrace.sinks.evolution import Evolution, TargetColumn
from headrace.sinks.lake.catalog import Namespace
from headrace.sinks.lake.data_files import DataFile
from headrace.sinks.lake.iceberg.facts import TableFacts, no_marks, partition_text
from headrace.sinks.lake.iceberg.indexed import commit_change, indexed_table, takes
from headrace.sinks.lake.iceberg.java import JavaTable
from headrace.sinks.lake.iceberg.live_files import LiveFiles
from headrace.sinks.lake.indexed import IndexedTable
from headrace.sinks.lake.key_index import Bounded
from headrace.sinks.lake.layout import LakePlan, TargetLayout, column_ddl
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table import LakeTable, TargetMoved, say_no_index
from headrace.sinks.lake.table_files import LakeFiles, PreparedTable
from headrace.sinks.lake.whole_rows import CollectedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MAIN = "main"
_PREFIX = "headrace_"
_REFUSED = ("IllegalArgumentException", "CommitFailedException", "PendingUpdateFailedException", "ValidationException")
"""How Iceberg says that the table has moved, or that the branch is gone."""
OWNER = "headrace.owner"
BATCH = "headrace.batch"
TARGET = "headrace.target"
OFFSETS = "headrace.offsets"
SINK = "headrace.sink"
_METADATA_COLUMNS = frozenset(
    ("_file", "_pos", "_partition", "_spec_id", "_deleted", "_row_id", "_last_updated_sequence_number")
)
"""Columns that every Iceberg table has beside its own; a MERGE finds the rows that it changes by them."""
_WAP = ("spark.wap.id", "spark.wap.branch")
"""Settings by which a session's writes are staged, until somebody publishes them."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class PreparedIceberg(PreparedTable):
    """An Iceberg table.

    Args:
        required: the columns that are never null.
        spec: how it is partitioned, as Iceberg writes it as JSON.
    """

    required: Sequence[str]
    spec: str

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([field.with_nullable(field.name not in self.required) for field in super().schema])

    def action(self, file: DataFile) -> dict[str, Any]:
        """Where it is, and its partition; the rest Iceberg reads from its footer when it is committed."""
        partition = partition_text(self.partitioning, self.spec, self.columns, file.partition)
        return {"path": file.path, "size": file.size, "partition": partition}


class IcebergFiles(LakeFiles):
    sink: ClassVar[str] = "iceberg"
    table: ClassVar[type[PreparedTable]] = PreparedIceberg


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


class IcebergTable(LakeTable):
    """An Iceberg table. The snapshot that a commit makes says in its summary which batch it is.

    A batch lands only where the table stands as it did when `plan` looked at it.

    Args:
        session: reads and writes the table.
        parts: catalogue, namespace and name.
        namespace: where it is to be created; None where it is there for certain.
        indexes: as in `LakeTable`.
    """

    title: ClassVar[str] = "Iceberg"
    rules: ClassVar[ColumnRules] = ColumnRules(
        "Iceberg",
        _METADATA_COLUMNS,
        # With a column `__row_operation` a MERGE writes values of other columns into it without an error.
        wrong=(("(?i)^__(row_|original_row_id_)", "by which Spark's MERGE into Iceberg means a column of its own"),),
    )

    def __init__(
        self,
        session: SparkSession,
        parts: tuple[str, ...],
        *,
        namespace: Namespace | None = None,
        indexes: Bounded[IndexedTable[LiveFiles]] | None = None,
    ) -> None:
        super().__init__(session, namespace=namespace, indexes=indexes)
        self._parts = parts
        self._mark: dict[str, str] = {}
        self._seen: JavaTable | None = None
        self._base: int | None = None
        self._branch: Branch | None = None

    @property
    def sql_name(self) -> str:
        """Its quoted name; while a batch is written, that of the branch which holds it."""
        branch = [] if self._branch is None else [f"branch_{self._branch.name}"]
        return ".".join(quote(part) for part in (*self._parts, *branch))

    @property
    def location(self) -> str:
        return ".".join(self._parts)

    @property
    def exists(self) -> bool:
        return bool(self.session.catalog.tableExists(self.sql_name))

    def companion(self, suffix: str) -> IcebergTable:
        return IcebergTable(self.session, (*self._parts[:-1], self._parts[-1] + suffix), namespace=self.namespace)

    def merge_source(self, frame: DataFrame) -> DataFrame:
        """The frame, computed now if it reads tables.

        Spark 4.1 can't plan a copy-on-write MERGE with a view that reads an Iceberg table (No plan for TableReference).
        Every release would read the tables twice: to find the files that change, and for their rows.
        """
        plan = str(frame._jdf.queryExecution().analyzed())
        return frame.localCheckpoint() if "RelationV2[" in plan else frame

    def plan(self, layout: TargetLayout, batch: BatchId | None, **how: Any) -> LakePlan:
        """Compare the target with what the batch needs, and note where it stands before anything is read from it.

        Raises:
            SinkError: the session's writes are staged, so that the batch would be in no version of the table.
        """
        self._refuse_staged()
        self._seen = None
        self._base = self._table().snapshot if batch is not None and self.exists else None
        return super().plan(layout, batch, **how)

    def commit(self, batch: BatchId | None, source: str, work: Callable[[], None], *, by_index: bool = False) -> None:
        """Do the work on a branch, and publish it where the table still stands as `plan` found it.

        A writer that pauses between the check for the batch and the commit therefore can't write it twice. A commit by
        index needs no branch, because it names the snapshot that it starts from.

        Raises:
            TargetMoved: it does not; nothing of the batch is in the table.
        """
        if batch is None:
            work()
            return
        self._mark = _mark(batch, source)
        try:
            if by_index:
                work()
                return
            branch = Branch(self._java(), self.label)
            branch.begin(self._base)
            self._branch = branch
            self._marked(work)
        finally:
            self._branch, self._seen, self._mark = None, None, {}
        faultpoints.reach("sink.iceberg.before_publish")
        self._base = branch.publish()

    def prepare(self, plan: LakePlan, *, properties: Mapping[str, str]) -> None:
        super().prepare(plan, properties=properties)
        if not plan.exists or plan.set or plan.changes_columns:
            self._seen = None

    def properties(self) -> dict[str, str]:
        return dict(self._table().facts.properties)

    def types(self) -> dict[str, str]:
        facts = self._table().facts
        return super().types() if facts.odd_column else facts.columns

    def _no_index(self, properties: Mapping[str, str] | None) -> str:
        """Of a table that is not there its format alone is known, and how it is written."""
        return no_marks(properties) if properties is not None else self._table().facts.no_index

    def replace_by_index(self, change: CollectedRows) -> bool:
        """Do it by a row delta of Iceberg's, with files that pyarrow writes.

        Raises:
            TargetMoved: rows came or went since `plan`; nothing of the batch is in the table.
        """
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        if self.indexes is None:
            return False
        try:
            return self._by_index(self.indexes, self._table(), change)
        except PySparkException as failure:
            raise moved(failure, self.label) from failure
        except Py4JError as failure:
            # The commit is the last step, so nothing has happened.
            if isinstance(failure, Py4JJavaError) or "does not exist" not in str(failure):
                raise moved(failure, self.label) from failure
            say_no_index(self.label, f"this Iceberg lacks a part that Headrace knows ({failure})")
            return False

    def _by_index(self, indexes: Bounded[IndexedTable[LiveFiles]], table: JavaTable, change: CollectedRows) -> bool:
        if table.facts.no_index or not takes(change, table.facts):
            return False
        known = self._known_rows(lambda: indexed_table(indexes, self.location, table, change, self._base))
        if known is None:
            return False
        branch = None if self._branch is None else self._branch.name
        folder = table.facts.folder
        assert folder is not None
        mark = self._mark
        if not self._done(lambda: commit_change(known, table, change, mark, branch, self.label), folder):
            return False
        if branch is None:
            self._base = table.snapshot
        return True

    def facts(self) -> TableFacts:
        return JavaTable(self.session, self._java()).facts

    def add_files(self, actions: Sequence[str], rows: DataFrame | None) -> str:
        """Make them the table's on the batch's branch, in an append of Iceberg's; further rows are another one."""
        table = JavaTable(self.session, self._java())
        if reason := table.facts.no_files:
            return reason
        assert self._branch is not None
        append = table.own.newAppend().toBranch(self._branch.name)
        files = [file for action in actions for file in json.loads(action)]
        assert table.facts.folder is not None
        table.facts.folder.require({file["path"]: file["size"] for file in files})
        for file in files:
            append.appendFile(table.data_file(f"{table.facts.data}/{file['path']}", file["size"], file["partition"]))
        for name, text in self._mark.items():
            append.set(name, text)
        append.commit()
        if rows is not None:
            rows.writeTo(self.sql_name).append()
        return ""

    def amend(self, work: Callable[[], object]) -> None:
        """Do the work on a branch too, so that the table stands where `plan` found it, and then where this leaves it.

        Raises:
            TargetMoved: it does not; nothing of the work is in the table.
        """
        branch = Branch(self._java(), self.label)
        branch.begin(self._base)
        self._branch = branch
        try:
            work()
        finally:
            self._branch, self._seen = None, None
        self._base = branch.publish()

    def release(self) -> None:
        """Close the catalogue: each session makes one of its own, with connections and threads, and never closes it."""
        jvm: Any = self.session.sparkContext._jvm
        known = self.session._jsparkSession.sessionState().catalogManager()
        # Only those that were used are listed; to ask for another one would make it.
        if not known.listCatalogs(getattr(getattr(jvm.scala, "None$"), "MODULE$")).contains(self._parts[0]):
            return
        catalog = known.catalog(self._parts[0]).icebergCatalog()
        # One that keeps tables, and those that hold nothing, can't be closed.
        if jvm.java.lang.Class.forName("java.lang.AutoCloseable").isInstance(catalog):
            catalog.close()

    def _table(self) -> JavaTable:
        """The table as `plan` found it; as it is now where nothing was planned since the last commit."""
        if self._seen is None:
            self._seen = JavaTable(self.session, self._java())
        return self._seen

    def _descent(self) -> Iterator[Any]:
        """The snapshots that the table, as it is now, descends from."""
        return JavaTable(self.session, self._java()).descent()

    def _java(self) -> Any:
        jvm: Any = self.session.sparkContext._jvm
        name = ".".join(quote(part) for part in self._parts)
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.session._jsparkSession, name)

    def _refuse_staged(self) -> None:
        staged = [name for name in _WAP if self.session.conf.get(name, None)]
        if staged:
            raise SinkError(
                f"The Spark session has the setting {staged[0]}, by which Iceberg stages what is written and does not "
                f"publish it. The {self.label} would lack the batch.",
                remedy=f"Remove {staged[0]} from the session that runs the pipeline.",
            )

    def _marked(self, work: Callable[[], None]) -> None:
        """Do the work; the snapshot that it makes carries the batch's mark.

        Iceberg's SQL takes such properties from the thread that commits, for as long as a piece of Java runs there.
        That piece is ours, called back by Java.
        """
        from pyspark.java_gateway import ensure_callback_server_started

        context = self.session.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        jvm: Any = context._jvm
        step = _Step(work)
        jvm.org.apache.iceberg.spark.CommitMetadata.withCommitProperties(
            self._mark, step, jvm.java.lang.Class.forName("java.lang.RuntimeException")
        )
        if step.failure is not None:
            raise step.failure

    def has(self, batch: BatchId, source: str) -> bool:
        """Whether the newest snapshot of the same owner that the table descends from is of this batch."""
        for snapshot in self._table().descent():
            summary = snapshot.summary()
            whose = (summary.get(OWNER), summary.get(TARGET)) == (batch.owner, source)
            if whose and (not batch.sink or (summary.get(SINK) or "") in ("", batch.sink)):
                return LastBatch(int(summary.get(BATCH)), summary.get(OFFSETS) or "").covers(batch, f"the {self.label}")
        return False

    def has_rows_of_others(self, batch: BatchId, source: str) -> bool:
        """By the newest snapshots. Where some are expired, nobody knows."""
        oldest = None
        for oldest in self._table().descent():
            summary = oldest.summary()
            if (summary.get(OWNER), summary.get(TARGET)) == (batch.owner, source):
                return False
            if oldest.operation() != "replace" and summary.get("added-data-files") not in (None, "0"):
                return True
        return oldest is not None and oldest.parentId() is not None

    def data_folder(self) -> Folder | str:
        facts = self.facts()
        return facts.folder or str(facts.storage)

    def names_of_files(self) -> set[str]:
        """As all snapshots have them, those of branches too."""
        lines = self.session.sql(f"select distinct file_path from {self.sql_name}.all_files").collect()
        return {str(line["file_path"]).rpartition("/")[2] for line in lines}

    def commits_since_compaction(self, most: int) -> int:
        """Snapshots that brought data before the last one that replaced files by others of the same rows."""
        commits = 0
        for snapshot in self._descent():
            if commits >= most or snapshot.operation() == "replace":
                break
            # The first one is empty: the first batch begins there.
            commits += snapshot.summary().get("changed-partition-count") != "0"
        return commits

    def compact(self) -> None:
        """Rewrite small data files as the table's properties say, then the deletes that concern files still there."""
        name = literal(".".join(quote(part) for part in self._parts[1:]))
        procedures = f"{quote(self._parts[0])}.system"
        self.session.sql(f"call {procedures}.rewrite_data_files(table => {name})")
        # Some deletes are of files that are gone now. (Format 3 has vectors instead, which is nothing to do here.)
        options = "map('min-input-files', '2')"
        self.session.sql(f"call {procedures}.rewrite_position_delete_files(table => {name}, options => {options})")

    def vacuum(self, hours: int) -> None:
        """Expire snapshots, but not the newest that says which batch the table has, and none after it."""
        kept = 0
        for snapshot in self._descent():
            kept += 1
            if snapshot.summary().get(OWNER) is not None:
                break
        before = dt.datetime.now(dt.UTC) - dt.timedelta(hours=hours)
        name = literal(".".join(quote(part) for part in self._parts[1:]))
        self.session.sql(
            f"call {quote(self._parts[0])}.system.expire_snapshots(table => {name}, "
            f"older_than => timestamp '{before:%Y-%m-%d %H:%M:%S} UTC', retain_last => {max(kept, 1)})"
        )

    def size(self) -> int | None:
        snapshot = self._table().own.currentSnapshot()
        held = "0" if snapshot is None else snapshot.summary().get("total-files-size")
        return None if held is None else int(held)

    def create(self, layout: TargetLayout, properties: Mapping[str, str]) -> None:
        """Create the table with the source's comments, and its key as identifier fields where it has no NULL."""
        columns = ", ".join(column_ddl(column, nullable=False) for column in (*layout.columns, *layout.own))
        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        comment = f" comment {literal(layout.comment)}" if layout.comment else ""
        self.session.sql(
            f"create table if not exists {self.sql_name} ({columns}) using iceberg{layout.partitioning.ddl}{comment} "
            f"tblproperties ({pairs})"
        )
        # Iceberg takes no binary fractions there. They identify rows all the same: the MERGE compares them.
        required = {c.name for c in layout.columns if not c.nullable and c.type not in ("float", "double")}
        if layout.key and required.issuperset(layout.key):
            names = ", ".join(quote(name) for name in layout.key)
            self.session.sql(f"alter table {self.sql_name} set identifier fields {names}")
        if layout.cluster:
            # Within each task only: over all of them it would take a shuffle with a sample of every batch.
            names = ", ".join(quote(name) for name in layout.cluster)
            self.session.sql(f"alter table {self.sql_name} write locally ordered by {names}")

    def column_type(self, kind: str) -> str:
        """Iceberg's smallest integer is int."""
        return "int" if kind in ("tinyint", "smallint") else kind

    def widens(self, old: str, new: str) -> bool:
        """What Iceberg promotes: int to bigint, float to double, a decimal to more digits of the same scale."""
        if (old, new) in (("int", "bigint"), ("float", "double")):
            return True
        a, b = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
        return a is not None and b is not None and a[2] == b[2] and int(a[1]) <= int(b[1])

    def properties_for(self, evolution: Evolution, columns: tuple[TargetColumn, ...]) -> Mapping[str, str]:
        """Iceberg needs nothing beforehand: it knows columns by number."""
        return {}


def _mark(batch: BatchId, source: str) -> dict[str, str]:
    """What a snapshot's summary says of the batch that it brought: pipeline, checkpoint, number and offsets."""
    mark = {OWNER: batch.owner, BATCH: str(batch.number), TARGET: source}
    return mark | {name: text for name, text in ((OFFSETS, batch.offsets), (SINK, batch.sink)) if text}


class _Step:
    """A piece of work as Java calls it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.failure: BaseException | None = None

    def call(self) -> None:
        """Do it. A failure is kept, because Java would hand over only its text."""
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure

    class Java:
        implements: ClassVar[list[str]] = ["java.util.concurrent.Callable"]


def refuse_without_iceberg(spark: SparkSession) -> None:
    """Stop where the session can't write Iceberg tables.

    Raises:
        SinkError: with what to set.
    """
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "IcebergSparkSessionExtensions" not in extensions:
        raise SinkError(
            "This Spark session does not have Iceberg.",
            remedy="Start it with the package iceberg-spark-runtime of Spark's version and "
            "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions.",
        )
