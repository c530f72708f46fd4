"""Data files that no version of a table names: what tasks left behind that failed or were killed.

Only files with our own names are looked at, and none that is younger than the caller says: a batch at work names its
files when it commits. No two files have one name, so names are compared without their folders: however a log writes the
path of a file, the file is not taken for an orphan.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from headrace.errors import SinkError
from headrace.sinks.base import OrphanFile
from headrace.sinks.lake.data_files import is_own_name
from headrace.sinks.lake.refusals import explained
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table import LakeTable


def orphans_of(target: LakeTable, before: dt.datetime) -> list[OrphanFile]:
    """The orphans of a table that is there, by path.

    Args:
        target: the table.
        before: files that were written later are not looked at.

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
        # After the files were listed, so that a file which is committed meanwhile is no orphan.
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
