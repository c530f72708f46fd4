"""Data files that no version of a table names: what tasks left behind that failed or were killed.

Only files with our own names are looked at, and none that is younger than the caller says: a batch at work names its
files when it commits.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection
from uuid import uuid4

from headrace.errors import SinkError
from headrace.sinks.base import OrphanFile
from headrace.sinks.lake.storage import Folder

_NAME = re.compile(r"headrace-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z]+\.parquet")


def new_name(compression: str) -> str:
    """The name of a new data file, which no other file has. Other writers of lake tables give no such names."""
    return f"headrace-{uuid4()}.{compression}.parquet"


def orphans_in(folder: Folder, named: Callable[[], Collection[str]], before: dt.datetime) -> list[OrphanFile]:
    """The orphans in a folder of data files, by path.

    Args:
        folder: the folder.
        named: reads the paths that retained versions of the table name. Called after the files were listed, so that a
            file which is committed meanwhile is none.
        before: files that were written later are not looked at.

    Raises:
        SinkError: the folder can't be read.
    """
    try:
        old = [
            OrphanFile(path, size, modified)
            for path, size, modified in folder.storage.files_below(folder.path)
            if _NAME.fullmatch(path.rpartition("/")[2]) and modified < before
        ]
        known = named() if old else ()
    except (OSError, ValueError) as failure:
        raise SinkError(
            f"The files of {folder} can't be listed ({failure}).", remedy="Nothing was deleted. Try again."
        ) from failure
    return sorted((file for file in old if file.path not in known), key=lambda file: file.path)
