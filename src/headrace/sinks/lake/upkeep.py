"""Upkeep of tables between batches: small files become larger ones, and files go that no version needs.

An orphan has a name that Headrace gives, is older than the caller says, and is in no version. Younger files may belong
to a batch that has not committed yet. Every file has a name of its own, so names are compared without folders: a log
may write the path of a file in any way.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence

from headrace.errors import OptionError, SinkError
from headrace.settings import Settings, option
from headrace.sinks.base import OrphanFile
from headrace.sinks.lake.data_files import is_own_name
from headrace.sinks.lake.refusals import explained
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table import LakeTable

_LOG = logging.getLogger("headrace.sinks")


def orphans_of(target: LakeTable, before: dt.datetime) -> list[OrphanFile]:
    """The orphans of a table that is there, by path.

    Args:
        target: the table.
        before: files that were written later are no orphans.

    Raises:
        SinkError: its folder or its versions can't be read.
    """
    folder = _folder_of(target)
    try:
        old = [
            OrphanFile(path, size, modified)
            for path, size, modified in folder.storage.files_below(folder.path)
            if is_own_name(path) and modified < before
        ]
        # List first, then ask for names: a file that a commit adds in between must not count as an orphan.
        with explained(target.label, target):
            named = target.names_of_files() if old else set()
    except (OSError, ValueError) as failure:
        raise SinkError(
            f"The files of the {target.label} can't be listed: {failure}.",
            remedy="Nothing was deleted. See that the folder can be read, and try again.",
        ) from failure
    return sorted((file for file in old if file.path.rpartition("/")[2] not in named), key=lambda file: file.path)


def delete_orphans(target: LakeTable, files: Sequence[OrphanFile]) -> None:
    """Delete files that `orphans_of` has just given.

    Raises:
        SinkError: one can't be deleted.
    """
    storage = _folder_of(target).storage
    try:
        for file in files:
            storage.delete(file.path)
    except OSError as failure:
        raise SinkError(
            f"A file of the {target.label} can't be deleted: {failure}.",
            remedy="See that this login may delete files there. You can repeat the command.",
        ) from failure


def _folder_of(target: LakeTable) -> Folder:
    folder = target.data_folder()
    if isinstance(folder, str):
        raise SinkError(
            f"The files of the {target.label} can't be listed, because {folder}.",
            remedy="Delete those that no version names by VACUUM (Delta) or remove_orphan_files (Iceberg).",
        )
    return folder


class UpkeepSettings(Settings):
    """When tables are compacted, and what is kept of old versions."""

    compact_every: int = option(
        "After how many commits the small files of a table are rewritten as larger ones (`OPTIMIZE` in Delta, "
        "`rewrite_data_files` in Iceberg), before the next batch; 0 for never. Compaction by others counts. One that "
        "fails is logged as a warning and tried again after so many commits more.",
        default=0,
        minimum=0,
    )
    vacuum_retain_hours: int | None = option(
        "For how many hours files of old versions stay. Older ones are deleted after each compaction (`VACUUM` in "
        "Delta, `expire_snapshots` in Iceberg). Unless it is set, all stay. Delta refuses fewer than 168, "
        "Iceberg fewer than 24. New Delta tables keep their log as long.",
        default=None,
        minimum=1,
    )


class Upkeep:
    """Compacts the tables of one sink. Runs in the driver; tables may be written side by side.

    How many commits a table has had since it was compacted stands in the table itself, so that a restart changes
    nothing. It is looked up for the first commit of a process, and before each compaction.

    Args:
        settings: when.

    Raises:
        OptionError: old versions are to go, but nothing is compacted.
    """

    def __init__(self, settings: UpkeepSettings) -> None:
        self._every = settings.compact_every
        self._hours = settings.vacuum_retain_hours
        self._commits: dict[str, int] = {}
        if self._hours is not None and not self._every:
            raise OptionError(
                "Option 'vacuum_retain_hours' takes effect after a compaction, and 'compact_every' is 0.",
                remedy="Set 'compact_every', to 100 for instance, or run VACUUM or expire_snapshots yourself.",
            )

    def after_commit(self, target: LakeTable) -> None:
        """Compact a table that was just committed to, if it is time.

        A failure is a warning: the batch is in the table.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not self._every:
            return
        try:
            known = self._commits.get(target.location)
            commits = self._count_commits(target) if known is None else known + 1
            if known is not None and commits >= self._every:
                # Somebody else may have compacted the table since then.
                commits = self._count_commits(target)
            if commits >= self._every:
                target.compact()
                if self._hours is not None:
                    target.vacuum(self._hours)
                commits = 0
        except (PySparkException, Py4JError) as failure:
            commits = 0
            condition = failure.getCondition() if isinstance(failure, PySparkException) else None
            _LOG.warning(
                "The %s can't be compacted (%s). Its batches are there; Headrace tries again in %d commits. If that "
                "fails too, compact it yourself and set 'compact_every' to 0.",
                target.label,
                condition or type(failure).__name__,
                self._every,
            )
        self._commits[target.location] = commits

    def _count_commits(self, target: LakeTable) -> int:
        return target.commits_since_compaction(self._every)
