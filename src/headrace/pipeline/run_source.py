"""Where the changes of a run come from, databases or topics, and how far it is with them. Runs in the driver."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.changes import TableId
from headrace.errors import HeadraceError
from headrace.observe.checkpoint import TOPIC_IDS
from headrace.observe.completeness import completeness
from headrace.observe.open_lineage import Lineage
from headrace.observe.progress import PipelineProgress, ProgressBoard
from headrace.observe.troubles import Troubles
from headrace.options import as_text
from headrace.pipeline.batch_inputs import BatchInput, EncodedInput, MessageInput, RowInput
from headrace.pipeline.cascades import Cascades
from headrace.pipeline.checkpoint import Checkpoint
from headrace.pipeline.ending import DatabasesEnding, Ending, TopicsEnding
from headrace.pipeline.first_loads import FirstLoads
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.kafka_source import KafkaTopics, TopicIds, trimmed
from headrace.pipeline.model import Model
from headrace.pipeline.parking import Parking
from headrace.pipeline.topic_files import TopicFiles
from headrace.pipeline.unmatched import FeedPatterns, names_columns
from headrace.pipeline.written_tables import lineage_of_database, lineage_of_topics
from headrace.sources.base import Source
from headrace.sources.databases import Databases, Heads, Offsets
from headrace.sources.health import Health, combined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger("headrace.pipeline")
_HEAD_SECONDS = 1.0
HEALTH_SECONDS = 2.0
"""A database is asked for its health at most once in this time."""


class RunSource(ABC):
    """What a run reads.

    Args:
        model: the pipeline's file.
        spark: the session.
        checkpoint: its checkpoint.
    """

    chunk_rows: int = 0
    """How many rows a chunk of a snapshot has; 0 where none is known."""
    cascades: Cascades | None = None
    """Looks up rows that foreign keys change and the log does not have."""

    def __init__(self, model: Model, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._model = model
        self._spark = spark
        self._checkpoint = checkpoint

    def confirm(self) -> None:
        """See that it can be read on, before a batch is planned.

        Raises:
            HeadraceError: it can't.
        """
        return None

    @abstractmethod
    def read_stream(self, loads: FirstLoads, fusing: Fusing, *, once: bool) -> DataFrame:
        """The stream of what is read.

        Args:
            loads: what workers write into files of tables.
            fusing: whether workers encode what they read.
            once: whether the run should end.
        """

    @abstractmethod
    def batch_input(self, parking: Parking, loads: FirstLoads, fusing: Fusing) -> BatchInput:
        """What a batch of the stream holds, and the stages that it goes through."""

    @abstractmethod
    def ending(self) -> Ending:
        """When all is read that it offers now.

        Raises:
            HeadraceError: it can't be asked, or has less than was read of it already.
        """

    @abstractmethod
    def progress(
        self, board: ProgressBoard, query: StreamingQuery, parking: Parking, troubles: Troubles
    ) -> PipelineProgress:
        """What all sinks have, and how far they lag."""

    @abstractmethod
    def lineage(self, tables: Iterable[TableId]) -> Lineage:
        """What was read and written until now.

        Args:
            tables: those of which something was written.
        """

    def failure(self, text: str) -> HeadraceError | None:
        """What an error of Spark's means, by its text; None where nothing is known of it."""
        return None


class TopicRun(RunSource):
    """Topics of Kafka, as `RunSource`."""

    def __init__(self, model: Model, spark: SparkSession, checkpoint: Checkpoint, topics: KafkaTopics) -> None:
        super().__init__(model, spark, checkpoint)
        self._topics = topics
        self._ids = TopicIds(
            topics.ids(spark.sparkContext._jvm),
            checkpoint.topic_ids(),
            partial(checkpoint.keep, TOPIC_IDS),
            fail_on_data_loss=topics.settings.fail_on_data_loss,
        )

    def confirm(self) -> None:
        # Before an offset is planned, so that none is of a topic whose id is not kept.
        self._ids.confirm()
        if self._checkpoint.planned() is None and self._topics.settings.starting_offsets == "earliest":
            self._require_whole()

    def _require_whole(self) -> None:
        """Say where a topic does not hold all that was ever sent to it.

        Raises:
            DataLossError: a table would lack rows, and the user did not say that this is well.
        """
        trimmed_topics = trimmed(self._topics.head(self._spark))
        if trimmed_topics is None:
            return
        if self._topics.settings.on_trimmed == "fail" and self._model.keeps_tables:
            raise trimmed_topics
        _LOG.warning("%s", trimmed_topics.message)

    def read_stream(self, loads: FirstLoads, fusing: Fusing, *, once: bool) -> DataFrame:
        return self._topics.read_stream(self._spark)

    def batch_input(self, parking: Parking, loads: FirstLoads, fusing: Fusing) -> BatchInput:
        files = TopicFiles.of(self._model, self._topics.format)
        return MessageInput(
            parking=parking,
            decode=files.decode,
            on_error=self._topics.on_error,
            dead_letters=self._model.dead_letters,
            topic_ids=self._ids.confirm,
            patterns=self._patterns(),
            topic_files=files,
        )

    def _patterns(self) -> FeedPatterns | None:
        if not any(target.shaping.transforms or names_columns(target) for target in self._model.targets):
            return None
        is_fresh = self._checkpoint.committed() is None
        return FeedPatterns(self._model.targets, self._topics.settings, fresh=is_fresh)

    def ending(self) -> Ending:
        return TopicsEnding(
            self._topics.head(self._spark),
            self._checkpoint.offset,
            self._checkpoint.committed_offset(),
            newest_only=self._topics.settings.starting_offsets == "latest",
            fail_on_data_loss=self._topics.settings.fail_on_data_loss,
        )

    def progress(
        self, board: ProgressBoard, query: StreamingQuery, parking: Parking, troubles: Troubles
    ) -> PipelineProgress:
        last: Any = query.lastProgress
        source = last["sources"][0] if last and last["sources"] else None
        level = left = None
        if source is not None:
            # The last report describes the time before the running batch, so the run lags while a batch runs.
            waits = bool(query.status["isDataAvailable"])
            level = not waits and bool(source["endOffset"] == source["latestOffset"])
            left = _messages_left(source["endOffset"], source["latestOffset"])
        return board.progress(None, level, behind_messages=left, troubles=troubles.recent(), warnings=troubles.count)

    def lineage(self, tables: Iterable[TableId]) -> Lineage:
        committed = self._checkpoint.committed_offset()
        return lineage_of_topics(self._model, self._topics, json.loads(committed) if committed else {}, tables)

    def failure(self, text: str) -> HeadraceError | None:
        return self._topics.failure(text)


def _messages_left(ends: object, newest: object) -> int | None:
    """How many messages a batch left in the topics, by Spark's offsets; None where Spark does not say them."""
    if not isinstance(ends, dict) or not isinstance(newest, dict):
        return None
    return sum(
        max(0, int(end) - int(ends.get(topic, {}).get(partition, 0)))
        for topic, partitions in newest.items()
        for partition, end in partitions.items()
    )


class DatabaseRun(RunSource):
    """Databases, as `RunSource`."""

    def __init__(self, model: Model, spark: SparkSession, checkpoint: Checkpoint, source: Source) -> None:
        super().__init__(model, spark, checkpoint)
        self._databases = Databases(source)
        self._source = source
        self._planned = checkpoint.planned()
        self._head: tuple[float, bool | None] = (float("-inf"), None)
        self._health: tuple[float, Health | None] = (float("-inf"), None)
        self.chunk_rows = source.snapshots.chunk_rows
        self.cascades = Cascades(self._databases, model.targets, checkpoint) if self._databases.may_cascade else None

    def read_stream(self, loads: FirstLoads, fusing: Fusing, *, once: bool) -> DataFrame:
        from headrace.sources.reader import register

        register(self._spark)
        reader = self._spark.readStream.format(f"{self._model.source_type}_cdc")
        given = {name: as_text(value) for name, value in self._model.source_options.items() if value is not None}
        numbered = any(target.format is not None and target.format.numbered for target in self._model.targets)
        fixed = {
            "parallelism": str(self._spark.sparkContext.defaultParallelism),
            "serialNumbers": str(numbered).lower(),
            # The end of such a run is a place in the log.
            "followsLog": str(once).lower(),
            "parksTables": str(self._model.parks).lower(),
        }
        if login := loads.login(self._spark):
            fixed["storageSecret"] = login
        return reader.options(**given, **fixed, **fusing.options).load()

    def batch_input(self, parking: Parking, loads: FirstLoads, fusing: Fusing) -> BatchInput:
        several, live, cascades = len(self._databases.sources) > 1, self._reads_live_tables, self.cascades
        if fusing.fused:
            return EncodedInput(parking=parking, live=live, cascades=cascades, several=several, sent=fusing.sends)
        return RowInput(parking=parking, live=live, cascades=cascades, several=several, loads=loads)

    def _reads_live_tables(self, batch: int) -> bool:
        """Whether a batch holds rows of a snapshot: it ends in one, or the batch before did."""
        ends = [Offsets.from_text(self._checkpoint.offset(number)) for number in (batch - 1, batch)]
        return any(
            offsets is None or any(not of.is_level or of.has_open_requests for of in offsets.databases.values())
            for offsets in ends
        )

    def ending(self) -> Ending:
        return DatabasesEnding(Databases(self._source), self._checkpoint.offset, self._planned)

    def progress(
        self, board: ProgressBoard, query: StreamingQuery, parking: Parking, troubles: Troubles
    ) -> PipelineProgress:
        offsets = Offsets.from_text(self._checkpoint.committed_offset())
        level, health = self._is_level(offsets, query, troubles), self._health_now(offsets)
        return board.progress(
            None if offsets is None else offsets.merged(),
            level,
            health,
            None if offsets is None else completeness([offsets], None, parking.tables),
            parked=parking.tables,
            troubles=troubles.recent(),
            warnings=troubles.count,
        )

    def _is_level(self, offsets: Offsets | None, query: StreamingQuery, troubles: Troubles) -> bool | None:
        """Whether the sinks are at the source's head, asked at most once a second; of a run that ended at every look,
        as its last words are not of a moment ago."""
        asked, level = self._head
        if time.monotonic() - asked >= _HEAD_SECONDS or not query.isActive:
            try:
                level = _reached(offsets, self._databases.head(offsets))
            except HeadraceError as error:
                # The run meets the same error, in another process, and tries again. The lag is unknown meanwhile.
                troubles.add(error)
                level = None
            self._head = (time.monotonic(), level)
        return level

    def _health_now(self, offsets: Offsets | None) -> Health | None:
        """What the source says of its capture, asked every few seconds, by whoever asks for the progress."""
        asked, health = self._health
        if time.monotonic() - asked >= HEALTH_SECONDS:
            health = combined(self._databases.health(offsets))
            self._health = (time.monotonic(), health)
        return health

    def lineage(self, tables: Iterable[TableId]) -> Lineage:
        """As in `RunSource`; before the first batch what will be read."""
        offsets = Offsets.from_text(self._checkpoint.committed_offset())
        try:
            schemas = self._databases.tables() if offsets is None else self._databases.schemas(offsets)
        except HeadraceError:
            if offsets is not None:
                raise
            # The run meets the same error.
            return Lineage()
        return lineage_of_database(self._model, self._source, schemas)


def _reached(offsets: Offsets | None, heads: Heads) -> bool:
    return offsets is not None and offsets.reached(heads)


def run_source(model: Model, spark: SparkSession, checkpoint: Checkpoint) -> RunSource:
    """What a run of this pipeline reads."""
    if isinstance(model.source, KafkaTopics):
        return TopicRun(model, spark, checkpoint, model.source)
    return DatabaseRun(model, spark, checkpoint, model.source)
