"""What Spark and the table formats refuse to do with one table, as against what fails for a reason outside of it."""

from __future__ import annotations

import re

from headrace.sinks.java_failures import is_outside

_REFUSALS = ("AnalysisException", "ParseException", "DeltaUnsupportedOperationException", "DeltaTableFeatureException")
"""What is raised for what a table is, or for what it can't become, wherever it stands in the trace of Java."""
_CONSTRAINTS = re.compile(
    r"\[(DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL_CONSTRAINT|DELTA_EXCEED_CHAR_VARCHAR|NOT_NULL_ASSERT|EXCEED_LIMIT_LENGTH)"
)
"""What is raised for a value that the table's constraints forbid."""
_OF_NO_TABLE = re.compile(r"CATALOG_NOT_FOUND|INTERNAL_ERROR|_LEGACY_ERROR|UNABLE_TO_|FAILED_")


def is_refusal(failure: Exception) -> bool:
    """Whether a failure of Spark is surely one table's: an ALTER, a name or a value that is refused, say.

    Args:
        failure: what PySpark or Py4J raised.
    """
    from pyspark.errors import AnalysisException, PySparkException

    condition = (failure.getCondition() or "") if isinstance(failure, PySparkException) else ""
    text = f"{failure}\n{getattr(failure, '_stackTrace', '') or ''}"
    if _OF_NO_TABLE.search(condition) or is_outside(failure):
        return False
    if isinstance(failure, AnalysisException):
        return bool(condition)
    return any(f"{kind}:" in text for kind in _REFUSALS) or _CONSTRAINTS.search(text) is not None
