"""`load_pipeline` and `Pipeline`: a checked file, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.changes import TableSchema
from headrace.errors import OptionError
from headrace.observe.checkpoint import local_path
from headrace.observe.page import page_routes
from headrace.observe.server import ListenAddress, WatchServer
from headrace.observe.status import PipelineStatus
from headrace.pipeline.checkpoint import check_free, check_sound, known_offsets
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.model import Model, read_model
from headrace.pipeline.orphans import LEAST_HOURS, Orphans, find_orphans
from headrace.pipeline.plan import PipelinePlan, needs_spark, plan_pipeline
from headrace.pipeline.repair import Repair, move_tables, reread_tables
from headrace.pipeline.replay import DeadLetterGroup, OnTrimmed, OutOfOrder, Replay, list_dead_letters, prepared_replay
from headrace.pipeline.run import RunningPipeline
from headrace.pipeline.shared_places import refuse_shared_places, refuse_tables_alike
from headrace.pipeline.status import StatusWatcher, pipeline_status
from headrace.pipeline.topic_moves import move_topics
from headrace.pipeline.unmatched import unmatched_in
from headrace.pipeline.verify import LeftOut, Verified, verify
from headrace.pipeline.written_tables import written_tables
from headrace.sources.databases import Databases
from headrace.sources.table_versions import Kind
from headrace.sources.tables.unmatched import require_matched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_pipeline(path: str | PathLike[str]) -> Pipeline:
    """Read and check a pipeline file. Neither a server nor Spark is touched.

    Raises:
        OptionError: one sentence with file, line, the thing that is wrong, and the remedy.
    """
    return Pipeline(read_model(Path(path)))


def hiding(pipelines: Sequence[Pipeline]) -> Callable[[str], str]:
    """What takes the passwords of several pipelines out of a text, and what `${...}` stood for."""
    return lambda text: reduce(lambda left, pipeline: pipeline.hide(left), pipelines, text)


@contextmanager
def serve_pages(
    pipelines: Sequence[Pipeline], address: ListenAddress, *, spark: SparkSession | None = None
) -> Iterator[WatchServer]:
    """Show pipelines to a browser while the block runs, whether they run or not. Nothing is written or started.

    Args:
        pipelines: at least one.
        address: where to listen.
        spark: a classic session, for checkpoints that are not on this machine.

    Raises:
        OptionError: two pipelines have one name, a checkpoint needs a session, or the address can't be listened on.
    """
    names = [pipeline.name for pipeline in pipelines]
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"Two pipelines have the name '{name}'.", remedy="Give one of them another name.")

    looking = [StatusWatcher(pipeline._model, spark) for pipeline in pipelines]
    server = WatchServer(address, page_routes(looking, hiding(pipelines)))
    try:
        for one in looking:
            one.begin()
        yield server
    finally:
        for one in looking:
            one.close()
        server.close()


class Pipeline:
    """A pipeline that can be checked and started. Made by `load_pipeline`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._checked = False

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {str(self._model.file)!r})"

    @property
    def name(self) -> str:
        """The name under which sinks know who writes to them."""
        return self._model.name

    @property
    def checkpoint(self) -> str:
        """Path or URL of the only state."""
        return self._model.checkpoint

    @property
    def jars(self) -> tuple[str, ...]:
        """Maven coordinates of what Spark needs for this source and these sinks."""
        parts = (self._model.source, *(sink for _, sink in self._model.sinks))
        return tuple(dict.fromkeys(jar for part in parts for jar in part.jars))

    @property
    def session_settings(self) -> dict[str, str]:
        """Spark settings that these sinks need from a session's start, with the extensions of Delta and Iceberg."""
        from headrace.spark.session import session_needs

        return session_needs(self.jars) | self._model.session_settings

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that it reads and writes."""
        written = [target.format for target in self._model.targets if target.format is not None]
        return tuple(sorted({format.name for format in (*written, *self._model.source.formats)}))

    def hide(self, text: str) -> str:
        """The text without passwords and without what `${...}` stood for; for whatever is shown of this pipeline."""
        return self._model.hide(text)

    def check(self, *, spark: SparkSession | None = None) -> Sequence[TableSchema]:
        """Ask the source and every sink whether they can be used. Nothing is written and no Spark job is started.

        Args:
            spark: a classic session, for a checkpoint that is not on this machine: a table that it knows need not be
                captured any more.

        Returns:
            The tables that will be captured; empty for topics.

        Raises:
            ConnectError: a server can't be reached or refuses the login.
            CaptureError: a table does not exist or is not set up for capture.
            SinkError: a sink can't be written.
            OptionError: the checkpoint is in use by another run, or a route or transform does not suit a table. What
                an expression says is read at the first batch.
        """
        check_free(self.checkpoint)
        check_sound(self.checkpoint, self._model.source_type, spark)
        source = self._model.source
        tables: Sequence[TableSchema] = ()
        if isinstance(source, KafkaTopics):
            source.check()
        else:
            databases, known = Databases(source), known_offsets(self.checkpoint, spark)
            tables = databases.tables(known)
            require_matched(source.settings, unmatched_in(self._model.targets, tables, databases.gone(known, tables)))
            for target in self._model.targets:
                target.shaping.remember(databases.schemas(known))
                target.shaping.expect(tables)
            ids = [schema.id for schema in tables]
            refuse_shared_places(self._model.targets, ids, self._model.source_type)
            refuse_tables_alike(self._model.targets, ids, self._model.source_type)
        for _, sink in self._model.sinks:
            sink.check()
        self._checked = True
        return tables

    def status(self, *, spark: SparkSession | None = None, ask_source: bool = True) -> PipelineStatus:
        """Where the pipeline stands: position, completeness, lag, and how the source is. Nothing is written or started.

        It may run meanwhile, here or in another process. A source that can't be asked is not an error: its health says
        why.

        Args:
            spark: a classic session, for a checkpoint that is not on this machine.
            ask_source: whether to ask the source for its head and its health; without it lag and health are unknown.

        Raises:
            OptionError: the checkpoint is not on this machine and there is no session, or it can't be read.
            PositionMismatch: another release wrote the checkpoint.
        """
        return pipeline_status(self._model, spark, ask_source=ask_source)

    @property
    def looks_with_spark(self) -> bool:
        """Whether `plan` needs a session to look at the targets."""
        return needs_spark(self._model)

    def plan(self, *, spark: SparkSession | None = None) -> PipelinePlan:
        """What a run would do from the checkpoint. Nothing is written, locked or mined, and a run is not disturbed.

        Args:
            spark: a classic session, for checkpoints and targets that are looked at with one.

        Raises:
            HeadraceError: as the first batch of a run would.
        """
        return plan_pipeline(self._model, spark)

    def written_tables(self, start: Callable[[], SparkSession]) -> list[TableSchema]:
        """The tables that its messages have; see `headrace.pipeline.written_tables`."""
        return written_tables(self._model, start)

    def verify(self, spark: SparkSession, *, most: int = 20) -> Iterator[Verified | LeftOut]:
        """Compare the tables of the sinks with the source; see `headrace.pipeline.verify`. Nothing is written."""
        return verify(self._model, spark, most=most)

    @property
    def repairs_with_spark(self) -> bool:
        """Whether `reread`, `rewind` and `skip` need a session."""
        return isinstance(self._model.source, KafkaTopics) or local_path(self.checkpoint) is None

    def reread(
        self, tables: Sequence[str], *, incremental: bool = False, filter: str = "", spark: SparkSession | None = None
    ) -> Repair:
        """Look what it takes to read tables again, while the others go on; `Repair.do` does it.

        It may run meanwhile, here or in another process. Arguments and errors are those of
        `headrace.pipeline.repair.reread_tables`.
        """
        return reread_tables(self._model, tables, incremental=incremental, filter=filter, spark=spark)

    def rewind(self, tables: Sequence[str], to: str, *, spark: SparkSession | None = None) -> Repair:
        """Look what it takes to deliver changes of tables again since a place, while the others go on.

        Of Kafka topics or partitions (`topic:0`) are named, and the pipeline must not run. `Repair.do` does it.
        """
        return self._move("rewind", tables, to, spark)

    def skip(self, tables: Sequence[str], to: str, *, spark: SparkSession | None = None) -> Repair:
        """Look what it takes to leave out changes of tables up to a place, which loses them; as `rewind` else."""
        return self._move("skip", tables, to, spark)

    def orphans(self, spark: SparkSession, *, hours: int = LEAST_HOURS) -> Orphans:
        """List the data files of the pipeline's lake tables that no version of them names; `Orphans.do` deletes
        them. Arguments and errors are those of `headrace.pipeline.orphans.find_orphans`.
        """
        return find_orphans(self._model, spark, hours=hours)

    def _move(self, kind: Kind, tables: Sequence[str], to: str, spark: SparkSession | None) -> Repair:
        if not isinstance(self._model.source, KafkaTopics):
            return move_tables(self._model, tables, kind, to, spark=spark)
        if spark is None:
            raise OptionError("Kafka is asked through Spark.", remedy="Give a Spark session: spark=spark.")
        return move_topics(self._model, spark, tables, kind, to)

    def dead_letters(self, spark: SparkSession) -> Sequence[DeadLetterGroup]:
        """The dead letters that the pipeline has kept, by partition and reason. Nothing is written.

        Args:
            spark: a classic session, with the jars of `jars`.

        Raises:
            OptionError: the pipeline keeps none.
            SinkError: their sink can't be read back.
        """
        return list_dead_letters(self._model, spark)

    def replay(
        self,
        spark: SparkSession,
        *,
        topic: str = "",
        out_of_order: OutOfOrder | None = None,
        on_trimmed: OnTrimmed = "fail",
        holds: bool = True,
    ) -> AbstractContextManager[Replay]:
        """A replay of the dead letters, to be looked at (`plan`) and run; see `headrace.pipeline.replay`."""
        return prepared_replay(
            self._model, spark, topic=topic, out_of_order=out_of_order, on_trimmed=on_trimmed, holds=holds
        )

    def start(self, spark: SparkSession, *, once: bool = False, break_lock: bool = False) -> RunningPipeline:
        """Start, or go on from the checkpoint. Checks first, if that was not done.

        Args:
            spark: a classic session (not Connect), with the jars of `jars`.
            once: end by itself when everything is in the sinks that the source offered at this moment. `wait` has to
                be called.
            break_lock: take a checkpoint that is not on this machine from a run that seems to hold it.

        Raises:
            HeadraceError: as `check`; nothing was started.
        """
        from headrace.spark.java_names import remember_java_names

        if not self._checked:
            self.check(spark=spark)
        self._checked = False
        remember_java_names(spark)
        return RunningPipeline(self._model, spark, once=once, breaks_lease=break_lock)
