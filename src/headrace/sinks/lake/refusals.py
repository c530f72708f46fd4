"""What Spark and the table formats refuse to do with one table, as against what fails for a reason outside of it."""

from __future__ import annotations

import re

_REFUSALS = ("AnalysisException", "ParseException", "DeltaUnsupportedOperationException", "DeltaTableFeatureException")
"""What is raised for what a table is, or for what it can't become, wherever it stands in the trace of Java."""
_CONSTRAINTS = re.compile(
    r"\[(DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL_CONSTRAINT|DELTA_EXCEED_CHAR_VARCHAR|NOT_NULL_ASSERT|EXCEED_LIMIT_LENGTH)"
)
"""What is raised for a value that the table's constraints forbid."""
_OUTSIDE = re.compile(
    r"java\.(io|net|nio)\.|javax\.net\.|java\.sql\.|OutOfMemoryError|HiveException|MetaException|thrift|"
    r"org\.apache\.hadoop\.(fs|hdfs|security|ipc)\.\w*Exception|(?i:concurrent\w*exception|commitfailed|interrupted|"
    r"access.?denied|unauthori[sz]ed|forbidden|credential)"
)
"""What stands in a failure that another table may meet as well, or that passes."""
_OF_NO_TABLE = re.compile(r"CATALOG_NOT_FOUND|INTERNAL_ERROR|_LEGACY_ERROR|UNABLE_TO_|FAILED_")


def is_refusal(failure: Exception) -> bool:
    """Whether a failure of Spark is surely one table's: an ALTER, a name or a value that is refused, say.

    Args:
        failure: what PySpark or Py4J raised.
    """
    from pyspark.errors import AnalysisException, PySparkException

    condition = (failure.getCondition() or "") if isinstance(failure, PySparkException) else ""
    text = f"{failure}\n{getattr(failure, '_stackTrace', '') or ''}"
    if _OF_NO_TABLE.search(condition) or _OUTSIDE.search(_without_frames(text)):
        return False
    if isinstance(failure, AnalysisException):
        return bool(condition)
    return any(f"{kind}:" in text for kind in _REFUSALS) or _CONSTRAINTS.search(text) is not None


def _without_frames(text: str) -> str:
    """A trace without the lines that say where, whose names of packages say nothing of the reason."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("at ", "... ")))
