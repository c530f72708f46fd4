"""The position of a checkpoint, read strictly: a damaged one, or one of another source, is an error of one sentence.

Spark would go on from a part of it, or stop with a stack trace. So it is looked at before anything else is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from headrace.errors import NewerRelease, OptionError, PositionMismatch
from headrace.observe.checkpoint import (
    LAST_RUN,
    OWN_FILES,
    TOPIC_IDS,
    CheckpointFolder,
    batch_offsets,
    committed_batch,
    planned_batch,
    unknown_files,
)
from headrace.sources.databases import Offsets
from headrace.versions import __version__, require_known, require_readable

_REMEDY = "Restore the checkpoint from a backup, or start with a new one."
_FOREIGN = "Give each pipeline a checkpoint of its own, or start with a new one."
_NEWER = "Go on with that release, or start with a new checkpoint."
_LOG_VERSIONS = ("v1", "v2")
_LOG_VERSION = re.compile(r"v\d+")
_TOPIC_IDS_VERSION = 1
RELEASE = "release"
"""Where the file of the last run says which release it was of."""

Topics = Mapping[str, Mapping[str, int]]
"""The next offset of each partition, by topic."""


def read_offsets(folder: CheckpointFolder, batch: int | None, *, kind: str) -> Offsets | Topics | None:
    """Where a batch ends; None before the first.

    Args:
        folder: the checkpoint.
        batch: the batch's number; None for none.
        kind: the source's registered name, or `kafka`.

    Raises:
        OptionError: the checkpoint is damaged.
        PositionMismatch: another source wrote it.
        NewerRelease: a later release wrote it.
    """
    if batch is None:
        return None
    text = folder.text(f"offsets/{batch}")
    if text is None:
        raise _damaged(f"lacks the offsets of batch {batch}")
    head = text.split("\n", 2)
    _refuse_newer_log(head[0])
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
        PositionMismatch: another source wrote it.
        NewerRelease: a later release wrote it.
    """
    parsed = _parsed(line)
    captured = isinstance(parsed, dict) and "version" in parsed and "databases" in parsed
    topics = isinstance(parsed, dict) and not captured and all(isinstance(part, dict) for part in parsed.values())
    if not isinstance(parsed, dict) or not (captured or topics):
        raise _damaged(f"has an offset of batch {batch} that can't be read")
    if captured is (kind == "kafka"):
        other = "a database" if captured else "topics"
        raise PositionMismatch(
            f"The checkpoint belongs to a pipeline that reads {other}, but the source is '{kind}'.", remedy=_FOREIGN
        )
    if topics:
        if not all(type(at) is int for ends in parsed.values() for at in ends.values()):
            raise _damaged(f"has an offset of batch {batch} that can't be read")
        return dict(parsed)
    try:
        offsets = Offsets.from_json(parsed)
    except NewerRelease:
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
        PositionMismatch: another source wrote it.
        NewerRelease: a later release wrote it.
    """
    try:
        _check(folder, kind)
    except NewerRelease as newer:
        raise NewerRelease(f"{newer.message}{_last_release(folder)}", remedy=newer.remedy) from None


def _check(folder: CheckpointFolder, kind: str) -> None:
    require_known(unknown_files(folder), OWN_FILES, what="The checkpoint", remedy=_NEWER)
    committed, planned = committed_batch(folder), planned_batch(folder)
    if committed is None and planned is None:
        return
    if checkpoint_id(folder) is None:
        raise _damaged("lacks its file 'metadata'")
    kept_topic_ids(folder)
    if committed is not None:
        text = folder.text(f"commits/{committed}") or ""
        _refuse_newer_log(text.split("\n")[0])
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
        NewerRelease: a later release wrote them.
    """
    text = folder.text(TOPIC_IDS)
    if text is None:
        return {}
    parsed = _parsed(text)
    if isinstance(parsed, dict) and isinstance(parsed.get("topics"), dict):
        require_known(parsed, ("version", "topics"), what=f"The checkpoint's file '{TOPIC_IDS}'", remedy=_NEWER)
        version = parsed.get("version")
        require_readable(version, _TOPIC_IDS_VERSION, what=f"The checkpoint's file '{TOPIC_IDS}'", remedy=_NEWER)
        parsed = parsed["topics"]
    if not isinstance(parsed, dict) or not all(isinstance(id, str) for id in parsed.values()):
        raise OptionError(
            f"The checkpoint is damaged: it has a file '{TOPIC_IDS}' that can't be read.",
            remedy="Restore the checkpoint from a backup. Delete the file only if you know that the topics were not "
            "made again since.",
        )
    return parsed


def topic_ids_text(ids: Mapping[str, str]) -> str:
    kept = {"version": _TOPIC_IDS_VERSION, "topics": ids}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True)


def _last_release(folder: CheckpointFolder) -> str:
    """A sentence on whose the last run was, where its file says that it was another release's."""
    parsed = _parsed(folder.text(LAST_RUN) or "")
    release = parsed.get(RELEASE) if isinstance(parsed, dict) else None
    return f" The last run was of Headrace {release}." if isinstance(release, str) and release != __version__ else ""


def _refuse_newer_log(version: str) -> None:
    if _LOG_VERSION.fullmatch(version) and version not in _LOG_VERSIONS:
        raise NewerRelease(
            f"Spark wrote the checkpoint's log in version {version}, and Headrace {__version__} reads versions up to "
            f"{_LOG_VERSIONS[-1]}: a later release of Spark wrote it.",
            remedy="Go on with that release of Spark, and with a release of Headrace that runs on it.",
        )


def checkpoint_id(folder: CheckpointFolder) -> str | None:
    """The id that Spark keeps in the checkpoint, by which targets know who writes to them; None where there is none.

    Raises:
        OptionError: it can't be read.
    """
    text = folder.text("metadata")
    if text is None:
        return None
    parsed = _parsed(text)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("id"), str):
        raise _damaged("has a file 'metadata' that can't be read")
    return str(parsed["id"])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _damaged(what: str) -> OptionError:
    return OptionError(f"The checkpoint is damaged: it {what}.", remedy=_REMEDY)
