"""Delta's own log of a table, in the driver's JVM: what a commit finds there, and what it leaves.

Delta's Python API ends at whole commands. This is the part below, which Delta's commands themselves are made of, and
which has not changed since 4.0. Every name that is used of it stands here.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.sinks.lake.delta.facts import VECTORS, TableFacts
from headrace.sinks.lake.s3 import hadoop_settings, of_hadoop, storage_of
from headrace.sinks.lake.storage import Location, Storage
from headrace.sinks.lake.table import TRIES, TargetMoved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OTHERS = re.compile(
    r"\b(Concurrent(Append|DeleteRead|DeleteDelete|Transaction|Write)|MetadataChanged|ProtocolChanged)Exception\b"
)


@dataclass(frozen=True)
class BatchMark:
    """What a commit leaves in the log of the batch that it brought.

    Args:
        application: under which name.
        version: the number that Delta keeps for the name.
        epoch: the batch's number, for people who read the table's history.
    """

    application: str
    version: int
    epoch: int


class DeltaLog:
    """The log of a Delta table that is there.

    Args:
        session: a session with a JVM in this process.
        log: Delta's own.
    """

    def __init__(self, session: SparkSession, log: Any) -> None:
        self._session = session
        self._log = log
        jvm: Any = session.sparkContext._jvm
        self._jvm = jvm
        self._delta = jvm.org.apache.spark.sql.delta

    @property
    def known(self) -> bool:
        """Whether this is the Delta whose parts are named here, and not another build of it."""
        return str(self._log.getClass().getName()) == "org.apache.spark.sql.delta.DeltaLog"

    @property
    def _snapshot(self) -> Any:
        return self._log.unsafeVolatileSnapshot()

    @property
    def size(self) -> int:
        """How many bytes the data files have."""
        checksum = self._snapshot.checksumOpt() if self.known else None
        if checksum is not None and checksum.isDefined():
            return int(checksum.get().tableSizeBytes())
        return int(self._snapshot.sizeInBytes())

    def transaction_version(self, application: str) -> int | None:
        """The number that the last commit of an application left; None for none."""
        known = _of_checksum(self._snapshot, "setTransactions") if self.known else None
        if known is not None:
            return next((int(one.version()) for one in _each(known) if one.appId() == application), None)
        version = self._snapshot.transactions().get(application)
        return int(version.get()) if version.isDefined() else None

    @cached_property
    def storage(self) -> Storage | str:
        """How Python reaches the table's folder; or why it doesn't, as the end of a sentence."""
        location = Location.of_uri(_location(self._log))
        return storage_of(location, self._login)

    def _login(self, location: Location, bucket: str) -> Storage | str:
        settings = hadoop_settings(self._jvm, self._log.newDeltaHadoopConf())
        return of_hadoop(settings, location.scheme, bucket)

    @property
    def facts(self) -> TableFacts:
        """What the table is in the version that was looked at last."""
        return _facts(self._snapshot, self._log, self.storage)

    @property
    def no_index(self) -> str:
        """Why rows of the table can't be found by an index of keys, as the end of a sentence; empty where they can."""
        return self.facts.no_index if self.known else "this build of Delta has other parts"

    def has_rows_of_others(self, applications: Collection[str]) -> bool:
        """Whether a commit brought rows since the last one of these applications; of a log that lacks commits, too."""
        return _has_rows_of_others(self._jvm, self._log, int(self._snapshot.version()), applications)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A commit to be made, on the newest version of the table."""
        sessions = type(self._session)._get_j_spark_session_class(self._jvm)
        before = sessions.getActiveSession()
        sessions.setActiveSession(self._session._jsparkSession)
        try:
            yield Transaction(self._session, self._log, self._delta, self.storage)
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


class Transaction:
    """A commit to be made to a Delta table. Like a command, it fails if another commit got in the way.

    It counts as having read the whole table, so no other commit can come in between.
    """

    def __init__(self, session: SparkSession, log: Any, delta: Any, storage: Storage | str) -> None:
        self._session = session
        self._log = log
        self._delta = delta
        self._storage = storage
        self._jvm: Any = session.sparkContext._jvm
        self._own = log.startTransaction()
        self._own.readWholeTable()

    @property
    def version(self) -> int:
        """The version of the table that the commit starts from."""
        return int(self._own.snapshot().version())

    @cached_property
    def facts(self) -> TableFacts:
        return _facts(self._own.snapshot(), self._log, self._storage)

    @property
    def plain(self) -> bool:
        """Whether rows can come and go without more ado (`TableFacts.plain`)."""
        return self.facts.plain

    @property
    def marks_rows(self) -> bool:
        """Whether rows of the table are marked as deleted, so that their files stay."""
        return self.facts.is_on(VECTORS)

    def has_rows_of_others(self, applications: Collection[str]) -> bool:
        """`DeltaLog.has_rows_of_others` up to that version, or in a table to which others may append meanwhile."""
        if not self.facts.is_serializable:
            return True
        return _has_rows_of_others(self._jvm, self._log, self.version, applications)

    def files(self, where: Sequence[str]) -> Any:
        """The files that may have rows of which all of these conditions are true, as a sequence of Scala.

        They stay in the JVM, because a table may have very many.
        """
        known = _of_checksum(self._own.snapshot(), "allFiles")
        if known is not None:
            return known
        filters = []
        if where:
            none = self.rows(self.sequence([])).alias("t").where(" and ".join(where))
            filters.append(none._jdf.queryExecution().optimizedPlan().condition())
        return self._own.filterFiles(self.sequence(filters), False)

    def _with_statistics(self, files: Sequence[Any]) -> list[Any]:
        """The same files as the log has them, with the statistics that a search for files leaves out."""
        from pyspark.sql import functions as sf

        if all(file.stats() for file in files):
            return list(files)
        paths = [file.path() for file in files]
        return list(self._own.snapshot().allFiles().filter(sf.col("path").isin(paths)._jc).collectAsList())

    def rows(self, files: Any) -> DataFrame:
        """The rows of some files, a sequence of Scala."""
        from pyspark.sql import DataFrame

        none = self._jvm.scala.Option.empty()
        frame = self._log.createDataFrame(self._own.snapshot(), files, False, none)
        return DataFrame(frame, self._session)

    def marked(self, rows: DataFrame, files: Any) -> list[Any]:
        """Mark rows as deleted. The actions of the commit that say so.

        Args:
            rows: their `file_path` and `row_index`.
            files: where they may be, a sequence of Scala.
        """
        from pyspark.sql import functions as sf

        some, generator = self._jvm.scala.Some, self._delta.commands.DeletionVectorBitmapGenerator
        bitmaps = generator.buildRowIndexSetsForFilesMatchingCondition(
            self._session._jsparkSession,
            self._own,
            True,
            rows._jdf,
            files,
            self._jvm.org.apache.spark.sql.catalyst.expressions.Literal.TrueLiteral(),
            some(sf.col("file_path")._jc),
            some(sf.col("row_index")._jc),
        )
        helper = self._files_of_commands
        by_name = helper.generateCandidateFileMap(self._log.dataPath(), files)
        touched = list(_each(helper.findFilesWithMatchingRows(self._own, by_name, bitmaps)))
        actions = [one.fileLogEntry().remove() for one in touched if one.isFullyReplaced()]
        marked = {
            one.fileLogEntry().path(): one for one in touched if not one.isFullyReplaced() and not one.isUnchanged()
        }
        for entry in self._with_statistics([one.fileLogEntry() for one in marked.values()]):
            pair = entry.removeRows(marked[entry.path()].newDeletionVector(), True, True)
            actions += [pair._1(), pair._2()]
        return actions

    def named(self, files: Any, paths: Sequence[str]) -> list[Any]:
        helper = self._files_of_commands
        by_name = helper.generateCandidateFileMap(self._log.dataPath(), files)
        return [helper.getTouchedFile(self._log.dataPath(), path, by_name) for path in paths]

    def write(self, rows: DataFrame) -> list[Any]:
        """Write rows, which have the table's columns, into new files. The actions of the commit that say so."""
        return list(_each(self._own.writeFiles(rows._jdf)))

    def described(self, actions: Iterable[Mapping[str, Any]]) -> list[Any]:
        """The actions of the commit that stand in these lines of JSON (`headrace.sinks.lake.delta.actions`)."""
        from_json = getattr(self._delta.actions, "Action$").__getattr__("MODULE$").fromJson
        return [from_json(json.dumps(action, ensure_ascii=False)) for action in actions]

    def commit(self, actions: Iterable[Any], mark: BatchMark | None) -> int:
        """Make it.

        Args:
            actions: what it does.
            mark: what it leaves in the log; None for nothing.

        Returns:
            The version of the table that it made. It is later than the next one where commits without data, or
            others that change nothing that this one read, came in between.
        """
        none, some = self._jvm.scala.Option.empty(), self._jvm.scala.Some
        actions = list(actions)
        if mark is not None:
            self._own.readTxn().addOne(mark.application)
            now = int(time.time() * 1000)
            actions.append(self._delta.actions.SetTransaction(mark.application, mark.version, some(now)))
        mode = self._jvm.org.apache.spark.sql.streaming.OutputMode.Update()
        name, epoch = ("", 0) if mark is None else (mark.application, mark.epoch)
        update = getattr(self._delta, "DeltaOperations$StreamingUpdate")(mode, name, epoch, none)
        return int(self._own.commit(self.sequence(actions), update))

    @property
    def _files_of_commands(self) -> Any:
        return getattr(self._delta.commands, "DMLWithDeletionVectorsHelper$").__getattr__("MODULE$")

    def sequence(self, items: Iterable[Any]) -> Any:
        actions = self._jvm.java.util.ArrayList()
        for item in items:
            actions.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(actions)


@contextmanager
def conflicts_found(label: str) -> Iterator[None]:
    """Tells a commit that lost against another one from a commit that failed.

    Raises:
        TargetMoved: nothing of the commit is in the table.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        if not _OTHERS.search(f"{type(failure).__name__} {failure}"):
            raise
        raise other_commits(label) from failure


def other_commits(label: str) -> TargetMoved:
    """The error of a batch that others were faster than."""
    return TargetMoved(
        f"Other commits to the {label} got in the way of a batch {TRIES} times in a row.",
        remedy="Compact the table while the pipeline stands, or let the sink do it (compact_every). You can repeat "
        "the batch.",
    )


def _has_rows_of_others(jvm: Any, log: Any, version: int, applications: Collection[str]) -> bool:
    from py4j.protocol import Py4JJavaError

    names = getattr(jvm.org.apache.spark.sql.delta.util, "FileNames$").__getattr__("MODULE$")
    settings = log.newDeltaHadoopConf()
    for at in range(version, -1, -1):
        try:
            text = str(log.store().read(names.unsafeDeltaFile(log.logPath(), at), settings).mkString("\n"))
        except Py4JJavaError as failure:
            if "FileNotFoundException" not in str(failure.java_exception):
                raise
            return True
        lines = text.split("\n")
        if any(json.loads(line)["txn"]["appId"] in applications for line in lines if line.startswith('{"txn"')):
            return False
        if any(json.loads(line)["add"]["dataChange"] for line in lines if line.startswith('{"add"')):
            return True
    return False


def _facts(snapshot: Any, log: Any, storage: Storage | str) -> TableFacts:
    return TableFacts.of(snapshot.metadata().json(), snapshot.protocol().json(), _location(log), storage)


def _location(log: Any) -> str:
    return str(log.dataPath().toUri().toString())


def _each(sequence: Any) -> Iterator[Any]:
    elements = sequence.iterator()
    while elements.hasNext():
        yield elements.next()


def _of_checksum(snapshot: Any, what: str) -> Any:
    """What the file beside the last commit says of the whole table, a sequence of Scala; None if it doesn't."""
    checksum = snapshot.checksumOpt()
    if not checksum.isDefined():
        return None
    option = getattr(checksum.get(), what)()
    return option.get() if option.isDefined() else None
