"""The position of a checkpoint, read strictly: a damaged one, or one of another source, is an error of one sentence.

Spark would go on from a part of it, or stop with a stack trace. So it is looked at before anything else is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace.errors import OptionError, PositionMismatch
from headrace.observe.checkpoint import CheckpointFolder, batch_offsets, committed_batch, planned_batch
from headrace.sources.databases import Offsets

_REMEDY = "Restore the checkpoint from a backup, or start with a new one."
_FOREIGN = "Give each pipeline a checkpoint of its own, or start with a new one."
_LOG_VERSIONS = ("v1", "v2")
TOPIC_IDS = "headrace-topic-ids.json"
"""The file beside Spark's own that holds the id of each topic."""

Topics = Mapping[str, Mapping[str, int]]
"""The next offset of each partition, by topic."""


def read_offsets(folder: CheckpointFolder, batch: int | None, *, kind: str) -> Offsets | Topics | None:
    """Where a batch ends; null before the first.

    Args:
        folder: the checkpoint.
        batch: the batch's number; null for none.
        kind: the source's registered name, or `kafka`.

    Raises:
        OptionError: the checkpoint is damaged.
        PositionMismatch: another source wrote it, or another release.
    """
    if batch is None:
        return None
    text = folder.text(f"offsets/{batch}")
    if text is None:
        raise _damaged(f"lacks the offsets of batch {batch}")
    head = text.split("\n", 2)
    if head[0] not in _LOG_VERSIONS or len(head) < 3 or not isinstance(_parsed(head[1]), dict):
        raise _damaged(f"has offsets of batch {batch} that can't be read")
    lines = batch_offsets(folder, batch)
    if len(lines) != 1:
        raise _damaged(f"has offsets of batch {batch} of {len(lines)} sources, where one was expected")
    return None if lines[0] is None else offsets_in(lines[0], batch, kind=kind)


def offsets_in(line: str, batch: int, *, kind: str) -> Offsets | Topics:
    """What a line of Spark's offset log says.

    Args:
        line: a source's offset.
        batch: whose end it is.
        kind: the source's registered name, or `kafka`.

    Raises:
        OptionError: it is damaged.
        PositionMismatch: another source wrote it, or another release.
    """
    found = _parsed(line)
    captured = isinstance(found, dict) and "version" in found and "databases" in found
    topics = isinstance(found, dict) and not captured and all(isinstance(part, dict) for part in found.values())
    if not isinstance(found, dict) or not (captured or topics):
        raise _damaged(f"has an offset of batch {batch} that can't be read")
    if captured is (kind == "kafka"):
        other = "a database" if captured else "topics"
        raise PositionMismatch(
            f"The checkpoint belongs to a pipeline that reads {other}, but the source is '{kind}'.", remedy=_FOREIGN
        )
    if topics:
        if not all(type(at) is int for ends in found.values() for at in ends.values()):
            raise _damaged(f"has an offset of batch {batch} that can't be read")
        return dict(found)
    try:
        offsets = Offsets.from_json(found)
    except PositionMismatch:
        raise
    except Exception as error:
        # Whatever a wrong value makes of itself on its way into an offset.
        raise _damaged(f"has an offset of batch {batch} that can't be read") from error
    for offset in offsets.databases.values():
        owner, separator, _ = offset.source.partition(":")
        if separator and owner != kind:
            raise PositionMismatch(
                f"The checkpoint belongs to '{offset.source}', but the source is '{kind}'.", remedy=_FOREIGN
            )
    return offsets


def check_checkpoint(folder: CheckpointFolder, *, kind: str) -> None:
    """Whether a checkpoint can be read; one that is not there yet is fine.

    Args:
        folder: the checkpoint.
        kind: the source's registered name, or `kafka`.

    Raises:
        OptionError: it is damaged.
        PositionMismatch: another source wrote it, or another release.
    """
    committed, planned = committed_batch(folder), planned_batch(folder)
    if committed is None and planned is None:
        return
    if checkpoint_id(folder) is None:
        raise _damaged("lacks its file 'metadata'")
    kept_topic_ids(folder)
    if committed is not None:
        text = folder.text(f"commits/{committed}") or ""
        if text.split("\n")[0] not in _LOG_VERSIONS:
            raise _damaged(f"has a commit of batch {committed} that can't be read (commits/{committed})")
        read_offsets(folder, committed, kind=kind)
    if planned is not None:
        read_offsets(folder, planned, kind=kind)
        # A run that goes on begins where the batch before ended.
        before = str(planned - 1)
        if before in folder.names("commits") or before in folder.names("offsets"):
            read_offsets(folder, planned - 1, kind=kind)


def kept_topic_ids(folder: CheckpointFolder) -> Mapping[str, str]:
    """The id of each topic that the offsets are of; none in a checkpoint of a database, or of an earlier release.

    Raises:
        OptionError: they can't be read.
    """
    text = folder.text(TOPIC_IDS)
    if text is None:
        return {}
    found = _parsed(text)
    if not isinstance(found, dict) or not all(isinstance(id, str) for id in found.values()):
        raise OptionError(
            f"The checkpoint is damaged: it has a file '{TOPIC_IDS}' that can't be read.",
            remedy="Restore the checkpoint from a backup. Delete the file only if you know that the topics were not "
            "made again since.",
        )
    return found


def checkpoint_id(folder: CheckpointFolder) -> str | None:
    """The id that Spark keeps in the checkpoint, by which targets know who writes to them; null where there is none.

    Raises:
        OptionError: it can't be read.
    """
    text = folder.text("metadata")
    if text is None:
        return None
    found = _parsed(text)
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise _damaged("has a file 'metadata' that can't be read")
    return str(found["id"])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _damaged(what: str) -> OptionError:
    return OptionError(f"The checkpoint is damaged: it {what}.", remedy=_REMEDY)
