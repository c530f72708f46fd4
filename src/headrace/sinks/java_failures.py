"""What a failure of the JVM says at its root, and whether it passes.

A failure that rows meet may say a value of theirs, so of such a one only the kind is shown. What is refused before a
row is read knows names, types and settings; what it quotes, and its numbers, are left out all the same, because the
conditions of a statement may have keys in them.
"""

from __future__ import annotations

import re

from headrace.errors import SinkError

_LINK = re.compile(r"^(?:: |Caused by: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?:: (.*))?$", re.MULTILINE)
"""A line of a trace that begins with the class of an exception."""
_OUTSIDE = re.compile(
    r"java\.(io|net|nio)\.|javax\.net\.|java\.sql\.|OutOfMemoryError|HiveException|MetaException|thrift|"
    r"org\.apache\.hadoop\.(fs|hdfs|security|ipc)\.[\w.]*Exception|ExecutorLostFailure|failed to connect back|"
    r"(?i:concurrent\w*exception|commitfailed|interrupted|access.?denied|unauthori[sz]ed|forbidden|credential)"
)
"""What stands in a failure that another table may meet as well, or that passes."""
_OF_ROWS = re.compile(
    r"Job aborted|stage failure|TASK_WRITE_FAILED|USER_RAISED_EXCEPTION|"
    r"Spark(Runtime|Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds)Exception"
)
_OF_FILES = re.compile(r"java\.(io|net|nio)\.|org\.apache\.hadoop\.|java\.lang\.OutOfMemoryError")
_QUOTED = re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|(?<![\w`.])[+-]?\d[\d.,:-]*")
_PLACE = re.compile(r"( SQLSTATE: |; line \d+ pos ).*")
_MOST_SHOWN = 240


def is_outside(failure: Exception) -> bool:
    """Whether the reason lies outside of a table: a disk, a network, a login, another writer."""
    text = _full_text(failure)
    # Names of packages in the lines that say where are no reason.
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(("at ", "... ")))
    return _OUTSIDE.search("\n".join(lines)) is not None


def root_of(failure: Exception) -> str:
    """The kind of a failure at its root, and what that says as far as it can't be a value of a row; one line."""
    text = _full_text(failure)
    links = _LINK.findall(text)
    name, message = links[-1] if links else (type(failure).__name__, next(iter(str(failure).splitlines()), ""))
    if _OF_ROWS.search(text) and not _OF_FILES.match(name):
        message = ""
    message = _QUOTED.sub("…", _PLACE.sub("", message)).strip().rstrip(".")
    message = f"{message[:_MOST_SHOWN]}…" if len(message) > _MOST_SHOWN else message
    return ": ".join(part for part in (name.rpartition(".")[2], message) if part)


def unknown_failure(sentence: str, failure: Exception) -> SinkError:
    """The error for a failure that nothing else explains.

    Args:
        sentence: what can't be done, without its full stop.
        failure: what PySpark or Py4J raised.
    """
    remedy = "Run with --debug to see all of it."
    if is_outside(failure):
        remedy = f"Look whether the storage and the catalogue answer. {remedy} You can repeat the batch."
    return SinkError(f"{sentence} ({root_of(failure)}).", remedy=remedy)


def _full_text(failure: Exception) -> str:
    return f"{failure}\n{getattr(failure, '_stackTrace', '') or ''}"
