"""`RunningPipeline`: a run of a pipeline on a Spark session."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.observe.checkpoint import LAST_RUN, PARKED, STRUCTURES, TOPIC_IDS
from headrace.observe.completeness import completeness
from headrace.observe.history import FILE as FIGURES
from headrace.observe.open_lineage import Lineage, LineageEvents, lineage_client
from headrace.observe.progress import PipelineProgress, ProgressBoard
from headrace.observe.troubles import Troubles
from headrace.options import as_text
from headrace.pipeline.announced_structures import AnnouncedStructures
from headrace.pipeline.batch import BatchWriter, wait_for
from headrace.pipeline.batch_inputs import BatchInput, Delivery, EncodedInput, MessageInput, RowInput
from headrace.pipeline.cascades import Cascades
from headrace.pipeline.checkpoint import Checkpoint
from headrace.pipeline.checkpoint import held as held_checkpoint
from headrace.pipeline.checkpoint import to_text as last_run_text
from headrace.pipeline.ending import DatabasesEnding, Ending, TopicsEnding
from headrace.pipeline.first_loads import FirstLoads
from headrace.pipeline.fusing import Fusing
from headrace.pipeline.kafka_source import KafkaTopics, TopicIds, trimmed
from headrace.pipeline.model import Model
from headrace.pipeline.parking import Parking
from headrace.pipeline.recover import Attempts, full_text, recover
from headrace.pipeline.topic_files import TopicFiles
from headrace.pipeline.unmatched import FeedPatterns, names_columns
from headrace.pipeline.watch import FigureKeeper, Watch, rows_read
from headrace.pipeline.written_tables import flow_of, lineage_of_database, lineage_of_topics
from headrace.sources.databases import Databases, Heads, Offsets
from headrace.sources.health import Health, combined

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOG = logging.getLogger("headrace.pipeline")

STOP_SECONDS = 60.0
"""How long `stop` waits for the batch that is being written."""

_DRAIN_TRIGGER = "200 milliseconds"
_HEAD_SECONDS = 1.0
_HEALTH_SECONDS = 2.0
_POLL_SECONDS = 0.1
_LAST_WORDS_SECONDS = 10.0
_KEEP_SECONDS = 2.0
_KEEP_ELSEWHERE_SECONDS = 30.0
"""An object store takes money for each file that is written."""


class RunningPipeline:
    """A pipeline at work. Its methods may be called from any thread of the driver."""

    def __init__(self, model: Model, spark: SparkSession, *, once: bool, breaks_lease: bool = False) -> None:
        self._model = model
        self._spark = spark
        self._once = once
        self._attempts = Attempts("The start")
        self._last_at_start: int | None = None
        self._checkpoint = Checkpoint(spark, model.checkpoint)
        rows = 0 if isinstance(model.source, KafkaTopics) else model.source.snapshots.chunk_rows
        self._board = ProgressBoard(chunk_rows=rows)
        self._stopping = threading.Lock()
        self._head: tuple[float, bool | None] = (float("-inf"), None)
        self._health: tuple[float, Health | None] = (float("-inf"), None)
        self._planned = self._checkpoint.planned()
        self._started = False
        self._reported = ""
        self._troubles = Troubles()
        self._ending: Ending | None = None
        source = model.source
        self._databases = None if isinstance(source, KafkaTopics) else Databases(source)
        topics = source if isinstance(source, KafkaTopics) else None
        self._topic_ids = None if topics is None else self._ids_of(topics)
        cascades = None
        if self._databases is not None and self._databases.may_cascade:
            cascades = Cascades(self._databases, model.targets, self._checkpoint)
        self._parking = Parking(
            parks=model.parks,
            kept=self._checkpoint.text(PARKED),
            keep=self._keep_parked,
            offsets=lambda batch: _offsets(self._checkpoint.offset(batch)),
            command=("headrace", "repair", "reread", str(model.file)),
            below=None if cascades is None else cascades.below,
        )
        self._loads = FirstLoads(model, self._checkpoint.offset)
        self._fusing = Fusing.of(model, parked=bool(self._parking.tables))
        if any(target.format is not None for target in model.targets):
            _LOG.info("Messages are encoded %s.", self._fusing.text)
        delivery = Delivery(
            model.targets,
            self._board,
            connector=model.source_type,
            holds=lambda: self._confirm(),
            keep=self._checkpoint.keep_message_counts,
            structures=AnnouncedStructures(
                self._checkpoint.text(STRUCTURES), partial(self._checkpoint.keep, STRUCTURES)
            ),
        )
        self._writer = BatchWriter(
            model.name, self._batch_input(topics, cascades), delivery, offsets=self._checkpoint.offsets_hash
        )
        flow = flow_of(model)
        often = _KEEP_SECONDS if self._checkpoint.local_folder is not None else _KEEP_ELSEWHERE_SECONDS
        keeper = FigureKeeper(partial(self._checkpoint.keep, FIGURES), often, flow, model.hide)
        self.watch = Watch(model.name, self.progress, model.hide, flow, [keeper])
        """What is served of this run."""
        with ExitStack() as held:
            self._confirm = held.enter_context(
                held_checkpoint(self._checkpoint, model.name, model.lease_seconds, breaks=breaks_lease)
            )
            self._troubles.open()
            held.callback(self._troubles.close)
            self._parking.say_parked()
            held.callback(self._close_watch)
            if model.observe.prometheus is not None:
                self.watch.serve_metrics(model.observe.prometheus)
            if model.observe.opentelemetry is not None:
                self.watch.send_metrics(model.observe.opentelemetry)
            if model.observe.openlineage is not None:
                job = (model.observe.openlineage, model.name)
                events = LineageEvents(*job, self._lineage, lineage_client(), once=once, hide=model.hide)
                self.watch.follow(events)
            if self._topic_ids is not None:
                # Before an offset is planned, so that none is of a topic whose id is not kept.
                self._topic_ids.confirm()
            if topics is not None and self._planned is None and topics.settings.starting_offsets == "earliest":
                self._require_whole_topics(topics)
            if once:
                self.finish_at_head()
            self._query = self._attempts.run(self._start)
            self._started = True
            self._checkpoint.keep(LAST_RUN, last_run_text(model))
            self._held = held.pop_all()
        self._writer.begin(str(self._query.id))
        self.watch.begin()

    def _keep_parked(self, text: str | None) -> None:
        # Another driver may have taken the checkpoint over.
        self._confirm()
        if text is None:
            self._checkpoint.remove(PARKED)
        else:
            self._checkpoint.keep(PARKED, text)

    def _ids_of(self, topics: KafkaTopics) -> TopicIds:
        return TopicIds(
            topics.ids(self._spark.sparkContext._jvm),
            self._checkpoint.topic_ids(),
            partial(self._checkpoint.keep, TOPIC_IDS),
            fail_on_data_loss=topics.settings.fail_on_data_loss,
        )

    def _patterns_of(self, topics: KafkaTopics) -> FeedPatterns | None:
        if not any(target.shaping.transforms or names_columns(target) for target in self._model.targets):
            return None
        return FeedPatterns(self._model.targets, topics.settings, fresh=self._checkpoint.committed() is None)

    def _require_whole_topics(self, topics: KafkaTopics) -> None:
        """Say where a topic does not hold all that was ever sent to it.

        Raises:
            DataLossError: a table would lack rows, and the user did not say that this is well.
        """
        trimmed_topics = trimmed(topics.head(self._spark))
        if trimmed_topics is None:
            return
        if topics.settings.on_trimmed == "fail" and self._model.keeps_tables:
            raise trimmed_topics
        _LOG.warning("%s", trimmed_topics.message)

    @property
    def active(self) -> bool:
        """Whether it still runs."""
        return bool(self._query.isActive)

    @property
    def error(self) -> BaseException | None:
        """Why it ended by itself: a `HeadraceError` wherever one is the reason, else what Spark says, or None."""
        if self._writer.failure is not None:
            return recover(self._writer.failure) or self._writer.failure
        failure = self._query.exception()
        if failure is None:
            return None
        source = self._model.source
        of_kafka = source.failure(full_text(failure)) if isinstance(source, KafkaTopics) else None
        return recover(failure) or of_kafka or failure

    def progress(self) -> PipelineProgress:
        """What rests in all sinks since the start, and how far behind the source that is."""
        committed = self._checkpoint.committed_offset()
        self._time_planning()
        if self._board.is_reading:
            self._board.read(rows_read(self._spark, str(self._query.runId), self._loads.rows))
        if isinstance(self._model.source, KafkaTopics):
            level, messages_left = self._level_topics(), self._messages_left()
            return self._board.progress(None, level, behind_messages=messages_left, **self._wrong)
        offsets = _offsets(committed)
        level, health = self._level_database(committed), self._health_of_source(offsets)
        return self._board.progress(
            None if offsets is None else offsets.merged(),
            level,
            health,
            None if offsets is None else completeness([offsets], None, self._parking.tables),
            parked=self._parking.tables,
            **self._wrong,
        )

    @property
    def _wrong(self) -> Mapping[str, Any]:
        return {"troubles": self._troubles.recent(), "warnings": self._troubles.count}

    def finish_at_head(self) -> None:
        """End when everything that the source offers now is in the sinks and nothing else is left to do; `wait` then
        stops the run there.

        Raises:
            HeadraceError: the source can't be asked, or has less than was read of it already.
        """
        source = self._model.source
        offset = self._checkpoint.offset
        if isinstance(source, KafkaTopics):
            self._ending = TopicsEnding(
                source.head(self._spark),
                offset,
                self._checkpoint.committed_offset(),
                newest_only=source.settings.starting_offsets == "latest",
                fail_on_data_loss=source.settings.fail_on_data_loss,
            )
        else:
            self._ending = DatabasesEnding(Databases(source), offset, self._planned)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended: by `stop`, by an error, or at the head when that is the goal.

        Args:
            timeout: seconds; None for as long as it takes.

        Returns:
            Whether it has ended.

        Raises:
            HeadraceError: a sink, the source or a format failed; whatever else ended it is raised as Spark says it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.active or self._starts_again():
            if self._at_end():
                self.stop()
                break
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                return False
            # Short sleeps in Python, not one wait in the JVM: a signal must get through.
            time.sleep(left)
        self._release()
        error = self.error
        if error is not None:
            raise error
        return True

    def _at_end(self) -> bool:
        if self._ending is None:
            return False
        try:
            return self._ending.is_reached(self._checkpoint.committed())
        except HeadraceError:
            self.stop()
            raise

    def stop(self, timeout: float = STOP_SECONDS) -> bool:
        """Stop between two batches: the one that is being written is finished and committed, the next is not begun.

        Args:
            timeout: seconds to wait for that; then it is stopped anyway, and its batch comes again at the next start.

        Returns:
            Whether the last batch was finished.
        """
        with self._stopping:
            deadline = time.monotonic() + timeout
            finished = self._writer.close(timeout)
            if finished and self.active:
                left = max(0.0, deadline - time.monotonic())
                finished = wait_for(self._between_batches, left)
            # Spark's stop waits for the thread of the batch, which a sink may hold up.
            stopper = threading.Thread(target=self._query.stop, name="headrace-stop", daemon=True)
            stopper.start()
            stopper.join(_LAST_WORDS_SECONDS)
            self._release()
            return finished

    def _start(self) -> StreamingQuery:
        stream = self._read_stream()
        trigger = _DRAIN_TRIGGER if self._once else self._model.trigger
        writer = stream.writeStream.foreachBatch(self._writer).queryName(self._model.name)
        return writer.option("checkpointLocation", self._model.checkpoint).trigger(processingTime=trigger).start()

    def _starts_again(self) -> bool:
        """Start the query again where it ended because its planner, a Python worker too, did not connect in time."""
        with self._stopping:
            if self._writer.failure is not None or self._writer.closed:
                return False
            if self._writer.last != self._last_at_start:
                self._attempts, self._last_at_start = Attempts("The start"), self._writer.last
            if not self._attempts.may_follow(self._query.exception()):
                return False
            try:
                self._query = self._attempts.run(self._start)
            except Exception as failure:
                self._release()
                raise recover(failure) or failure from None
            return True

    def _read_stream(self) -> DataFrame:
        source = self._model.source
        if isinstance(source, KafkaTopics):
            return source.read_stream(self._spark)
        from headrace.sources.reader import register

        register(self._spark)
        reader = self._spark.readStream.format(f"{self._model.source_type}_cdc")
        given = {name: as_text(value) for name, value in self._model.source_options.items() if value is not None}
        numbered = any(target.format is not None and target.format.numbered for target in self._model.targets)
        fixed = {
            "parallelism": str(self._spark.sparkContext.defaultParallelism),
            "serialNumbers": str(numbered).lower(),
            # The end of such a run is a place in the log.
            "followsLog": str(self._once).lower(),
            "parksTables": str(self._model.parks).lower(),
        }
        if login := self._loads.login(self._spark):
            fixed["storageSecret"] = login
        return reader.options(**given, **fixed, **self._fusing.options).load()

    def _batch_input(self, topics: KafkaTopics | None, cascades: Cascades | None) -> BatchInput:
        if topics is not None:
            assert self._topic_ids is not None
            topic_files = TopicFiles.of(self._model)
            return MessageInput(
                parking=self._parking,
                decode=topic_files.decode,
                on_error=topics.on_error,
                dead_letters=self._model.dead_letters,
                topic_ids=self._topic_ids.confirm,
                patterns=self._patterns_of(topics),
                topic_files=topic_files,
            )
        assert self._databases is not None
        several = len(self._databases.sources) > 1
        live = self._reads_live_tables
        if self._fusing.fused:
            return EncodedInput(
                parking=self._parking, live=live, cascades=cascades, several=several, sent=self._fusing.sends
            )
        return RowInput(parking=self._parking, live=live, cascades=cascades, several=several, loads=self._loads)

    def _reads_live_tables(self, batch: int) -> bool:
        """Whether a batch holds rows of a snapshot: it ends in one, or the batch before did."""
        if self._databases is None:
            return False
        ends = [_offsets(self._checkpoint.offset(number)) for number in (batch - 1, batch)]
        return any(
            offsets is None or any(not of.is_level or of.has_open_requests for of in offsets.databases.values())
            for offsets in ends
        )

    def _between_batches(self) -> bool:
        """Whether the last batch that the sinks took is committed too."""
        last = self._writer.last
        if last is None or self._writer.held or not self.active:
            return True
        committed = self._checkpoint.committed()
        return committed is not None and committed >= last

    def _level_database(self, committed: str | None) -> bool | None:
        """Whether the sinks are at the source's head, asked at most once a second; of a run that ended at every look,
        as its last words are not of a moment ago."""
        asked, level = self._head
        assert self._databases is not None
        if time.monotonic() - asked >= _HEAD_SECONDS or not self.active:
            try:
                offsets = _offsets(committed)
                level = _reached(offsets, self._databases.head(offsets))
            except HeadraceError as error:
                # The run meets the same error, in another process, and tries again. The lag is unknown meanwhile.
                self._troubles.add(error)
                level = None
            self._head = (time.monotonic(), level)
        return level

    def _health_of_source(self, offsets: Offsets | None) -> Health | None:
        """What the source says of its capture, asked every few seconds, by whoever asks for the progress."""
        asked, health = self._health
        if time.monotonic() - asked >= _HEALTH_SECONDS:
            assert self._databases is not None
            health = combined(self._databases.health(offsets))
            self._health = (time.monotonic(), health)
        return health

    def _level_topics(self) -> bool | None:
        last: Any = self._query.lastProgress
        if not last or not last["sources"]:
            return None
        # The last report describes the time before the running batch, so the run lags while a batch runs.
        if self._query.status["isDataAvailable"]:
            return False
        source = last["sources"][0]
        return bool(source["endOffset"] == source["latestOffset"])

    def _time_planning(self) -> None:
        """Say of the batches that ended since the last time how long the source and Spark took around them."""
        reports: Any = self._query._jsq.recentProgress()
        newest = self._reported
        for index in range(len(reports) - 1, -1, -1):
            report = reports[index]
            at = str(report.timestamp())
            # An idle query reports again and again. ISO times sort as text.
            if at <= self._reported:
                break
            newest = max(newest, at)
            spent = report.durationMs()
            if (written := spent.get("addBatch")) is not None:
                self._board.planned(int(report.batchId()), max(0, spent.get("triggerExecution") - written) / 1000)
        self._reported = newest

    def _messages_left(self) -> int | None:
        """How many messages the last batch left in the topics, as Spark reported it; None before the first report."""
        last: Any = self._query.lastProgress
        if not last or not last["sources"]:
            return None
        source = last["sources"][0]
        ends, newest = source["endOffset"], source["latestOffset"]
        if not isinstance(ends, dict) or not isinstance(newest, dict):
            return None
        return sum(
            max(0, int(end) - int(ends.get(topic, {}).get(partition, 0)))
            for topic, partitions in newest.items()
            for partition, end in partitions.items()
        )

    def _lineage(self) -> Lineage:
        """What was read and written until now; before the first batch of a database what will be."""
        committed = self._checkpoint.committed_offset()
        if self._databases is None:
            topics = json.loads(committed) if committed else {}
            return lineage_of_topics(self._model, topics, self._board.table_ids)
        offsets = _offsets(committed)
        if offsets is not None:
            return lineage_of_database(self._model, self._databases.schemas(offsets))
        try:
            return lineage_of_database(self._model, self._databases.tables())
        except HeadraceError:
            # The run meets the same error.
            return Lineage()

    def _close_watch(self) -> None:
        error = self.error if self._started else None
        if error is not None:
            self._troubles.add(error, fatal=True)
        self.watch.close(self._troubles.recent())

    def _release(self) -> None:
        if not self.active:
            self._held.close()


def _offsets(text: str | None) -> Offsets | None:
    return None if text is None else Offsets.from_json(json.loads(text))


def _reached(offsets: Offsets | None, heads: Heads) -> bool:
    return offsets is not None and offsets.reached(heads)
