"""What a pipeline needs to know of Spark's checkpoint: what is committed, and that nobody else runs on it.

Spark owns the folder and writes it; here it is read, through Hadoop's file systems, so that any URL works that Spark
takes. Headrace keeps small files in it too: counts and what the last run was, on which nothing depends, and the ids
of topics, which say what the offsets are of.

One of these files says in what form the last run read and wrote, and which release it was. So `headrace check` can say
that the next run would use another form, and an earlier release can say whose the things are that it does not know.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from headrace.changes import TableId
from headrace.errors import OptionError
from headrace.observe.checkpoint import (
    MESSAGE_COUNTS,
    HadoopFolder,
    batch_offsets,
    committed_batch,
    local_path,
    open_folder,
    planned_batch,
)
from headrace.observe.completeness import offsets_of
from headrace.observe.kept_offsets import RELEASE, check_checkpoint, kept_topic_ids
from headrace.observe.messages import KeptCounts, MessageCounts
from headrace.pipeline.lease import Lease
from headrace.pipeline.model import Model
from headrace.pipeline.target import Target
from headrace.sinks.base import offsets_hash
from headrace.sources.databases import Offsets
from headrace.versions import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("headrace.pipeline")
LOCK = ".headrace.lock"
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Holder:
    """A run that holds a checkpoint.

    Args:
        process: its process id; 0 where it is not known yet.
        pipeline: its pipeline's name.
    """

    process: int
    pipeline: str


class Checkpoint:
    """A checkpoint folder as Spark sees it. Runs in the driver.

    Args:
        spark: a classic session, whose JVM opens the file system.
        location: path or URL.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location
        self.folder = HadoopFolder(spark, location)

    @property
    def local_folder(self) -> Path | None:
        return self.folder.local_path

    def text(self, file: str) -> str | None:
        """A small file's text; None where it is not there."""
        return self.folder.text(file)

    def committed(self) -> int | None:
        """The number of the newest batch that rests in all sinks; None before the first."""
        return committed_batch(self.folder)

    def planned(self) -> int | None:
        """The number of the newest batch that was planned, whether it was finished or not; None before the first."""
        return planned_batch(self.folder)

    def offset(self, batch: int | None) -> str | None:
        """Where a batch ends, in the source's own words; None when there is no such batch."""
        lines = [] if batch is None else batch_offsets(self.folder, batch)
        return lines[0] if lines else None

    def offsets_hash(self, batch: int) -> str:
        """What tells a batch from another one under the same number.

        Raises:
            OptionError: the checkpoint does not have the batch.
        """
        text = self.folder.text(f"offsets/{batch}")
        if text is None:
            raise OptionError(
                f"The checkpoint '{self.location}' has no offsets of batch {batch}, which is being written.",
                remedy="Nobody but the run may change a checkpoint. Restore it, or start with a new one.",
            )
        return offsets_hash(text)

    def message_counts(self) -> KeptCounts:
        """What was counted of messages that gave no change; nothing where none is kept."""
        return KeptCounts.from_text(self.folder.text(MESSAGE_COUNTS))

    def keep_message_counts(self, batch: int, counts: MessageCounts) -> None:
        """Count one batch more; the same batch again counts once."""
        self.keep(MESSAGE_COUNTS, self.message_counts().counted(batch, counts).to_text())

    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic that the offsets are of; none where none are kept."""
        return kept_topic_ids(self.folder)

    def keep(self, file: str, text: str) -> None:
        """Write a small file of Headrace's in place of the older one."""
        folder = self.local_folder
        if folder is None:
            self.folder.write(file, text)
            return
        # Spark takes names that are no number for no batch.
        draft = folder / f"{file}.draft"
        draft.write_text(text, encoding="utf-8")
        draft.replace(folder / file)

    def remove(self, file: str) -> None:
        folder = self.local_folder
        if folder is None:
            self.folder.delete(file)
        else:
            (folder / file).unlink(missing_ok=True)

    def committed_offset(self) -> str | None:
        """Where the newest committed batch ends; None before the first."""
        return self.offset(self.committed())

    def plan_batch(self, offset: str | None = None) -> int:
        """Put a batch after the committed one, as Spark would: the next run goes on after it. Gives its number.

        The caller holds the checkpoint (`owned`) and commits the batch when its rows rest in the sinks. Until then a
        run finds it planned, gives the sinks an empty batch of that number, and goes on.

        Args:
            offset: where the batch ends, in the source's own words; by default where the committed one ends.

        Raises:
            OptionError: no batch is finished yet, or the newest one is not.
        """
        committed, planned = self.committed(), self.planned()
        text = None if committed is None else self.folder.text(f"offsets/{committed}")
        if committed is None or text is None:
            raise OptionError(
                f"The checkpoint '{self.location}' has no finished batch yet.", remedy="Run the pipeline first."
            )
        if planned != committed:
            raise OptionError(
                f"Batch {planned} of the checkpoint '{self.location}' is planned and not finished.",
                remedy="Run the pipeline with --once first, which finishes it.",
            )
        lines = text.rstrip("\n").split("\n")
        self.keep(f"offsets/{committed + 1}", "\n".join([*lines[:2], lines[2] if offset is None else offset]))
        return committed + 1

    def commit_batch(self, batch: int) -> None:
        """Say of a batch of `plan_batch` that it rests in all sinks."""
        text = self.folder.text(f"commits/{batch - 1}")
        if text is None:
            raise OptionError(
                f"The checkpoint '{self.location}' has no commit of batch {batch - 1}.",
                remedy="Nobody but the run may change a checkpoint. Restore it, or start with a new one.",
            )
        self.keep(f"commits/{batch}", text)


def known_offsets(location: str, spark: SparkSession | None = None) -> Offsets:
    """Where the newest committed batch of a captured database ends; before the first batch where nobody can look."""
    if spark is None and local_path(location) is None:
        return Offsets()
    folder = open_folder(location, spark)
    batch = committed_batch(folder)
    lines = [] if batch is None else batch_offsets(folder, batch)
    offsets = offsets_of(lines[0]) if lines and lines[0] else None
    return offsets or Offsets()


def check_sound(location: str, kind: str, spark: SparkSession | None = None) -> None:
    """Whether a run can go on from a checkpoint, as far as it can be looked at from here.

    Args:
        location: path or URL.
        kind: the source's registered name, or `kafka`.
        spark: a classic session, for a checkpoint that is not on this machine.

    Raises:
        OptionError: it is damaged.
        PositionMismatch: another source wrote it.
        NewerRelease: a later release wrote it.
    """
    if spark is not None or local_path(location) is not None:
        check_checkpoint(open_folder(location, spark), kind=kind)


@contextlib.contextmanager
def held(
    checkpoint: Checkpoint, name: str, lease_seconds: float, *, breaks: bool = False
) -> Iterator[Callable[[], None]]:
    """Be the only pipeline on a checkpoint while the block runs, wherever it is. Gives what says that it still is so,
    to be asked before each batch is given to the sinks.

    Args:
        checkpoint: it.
        name: who holds it.
        lease_seconds: how long a checkpoint that is not on this machine is held without a word; 0 for no lease.
        breaks: whether to take it from a holder whose lease is not over.

    Raises:
        OptionError: another pipeline runs on it.
    """
    if checkpoint.local_folder is not None or not lease_seconds:
        with owned(checkpoint.local_folder, name):
            yield _no_lease
        return
    lease = Lease(checkpoint.folder, checkpoint.location, name, lease_seconds, breaks=breaks)
    lease.keep()
    try:
        yield lease.confirm
    finally:
        try:
            lease.release()
        except Exception as error:
            # It ends by itself; why the block ended says more.
            _LOG.warning(
                "The lease on checkpoint '%s' was not given back: %s", checkpoint.location, type(error).__name__
            )


def _no_lease() -> None:
    """The kernel holds the lock for the process, or there is none."""


@contextlib.contextmanager
def owned(folder: Path | None, name: str) -> Iterator[None]:
    """Be the only pipeline on a checkpoint of this machine while the block runs.

    The kernel holds the lock for the process, so that a killed one leaves nothing after that must be cleaned up. A
    checkpoint that is elsewhere (`folder` None) has no such lock, but a lease (`held`).

    Raises:
        OptionError: another pipeline runs on it.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / LOCK).open("a+")
    except OSError as error:
        raise OptionError(
            f"The checkpoint '{folder}' can't be written: {error.strerror}.", remedy="Name another folder."
        ) from error
    with handle:
        if not _locked(handle):
            raise _taken(folder)
        handle.truncate(0)
        handle.write(f"{os.getpid()} {name}\n")
        handle.flush()
        yield


def _locked(handle: IO[str]) -> bool:
    """Take the lock; whether it was free. Whoever only looks who holds it shares it for a moment, so that is waited."""
    deadline = time.monotonic() + _LOOK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS / 20)
        else:
            return True


def check_free(location: str) -> None:
    """Whether a local checkpoint is free, asked before Spark is started; nothing is created.

    Raises:
        OptionError: another pipeline runs on it.
    """
    folder = local_path(location)
    if folder is not None and holder(location) is not None:
        raise _taken(folder)


def holder(location: str) -> Holder | None:
    """The run that holds a checkpoint of this machine; None when it is free, or elsewhere."""
    folder = local_path(location)
    if folder is None:
        return None
    try:
        handle = (folder / LOCK).open("r")
    except OSError:
        # No lock file, no owner; `owned` reports a folder that can't be used.
        return None
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _owner(folder)
    return None


def _taken(folder: Path) -> OptionError:
    owner = _owner(folder)
    return OptionError(
        f"The checkpoint '{folder}' is in use by pipeline '{owner.pipeline}' (process {owner.process}).",
        remedy="Stop that one first, or give this pipeline a checkpoint of its own.",
    )


def _owner(folder: Path) -> Holder:
    pid, _, name = (folder / LOCK).read_text(errors="replace").strip().partition(" ")
    # Between taking the lock and writing into the file its owner has no name yet.
    return Holder(int(pid) if pid.isdigit() else 0, name)


_ANY_TABLE = TableId("database", "schema", "table")
_SOURCE = "source"


def forms(model: Model) -> dict[str, str]:
    """The format, and the topics, of the source and of each sink that has messages."""
    texts = {target.label: _form(target, model.source_type) for target in model.targets if target.format is not None}
    for format in model.source.formats:
        texts[_SOURCE] = format.name
    return texts


def to_text(model: Model) -> str:
    return json.dumps({RELEASE: __version__, **forms(model)}, ensure_ascii=False, sort_keys=True)


def differences(model: Model, text: str | None) -> list[str]:
    """What the next run would do in another form than the last one, as sentences."""
    try:
        before = json.loads(text) if text else {}
    except json.JSONDecodeError:
        return []
    if not isinstance(before, Mapping):
        return []
    changed = []
    for label, now in forms(model).items():
        was = before.get(label, now)
        if was != now and label == _SOURCE:
            changed.append(f"The last run read the topics as {was}, the next one would read them as {now}.")
        elif was != now:
            changed.append(f"The last run wrote {was} to {label}, the next one would write {now}.")
    return changed


def _form(target: Target, connector: str) -> str:
    assert target.format is not None
    try:
        topic = target.format.topic_for(_ANY_TABLE, connector)
    except OptionError:
        topic = None
    return target.format.name if topic is None else f"{target.format.name} with topics like {topic}"
