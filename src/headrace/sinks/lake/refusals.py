"""What Spark and the table formats refuse to do with one table, as against what fails for a reason outside of it; and
the sentences that a user gets.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.apply import no_order
from headrace.changes.one_table import about
from headrace.changes.refusal import StopReason
from headrace.changes.table import TableId
from headrace.errors import SchemaError, SinkError
from headrace.sinks.java_failures import is_outside, unknown_failure
from headrace.sinks.misfits import refuse_misfit
from headrace.sinks.table_sink import WRONG_VALUE

if TYPE_CHECKING:
    from headrace.sinks.lake.table import LakeTable

_REFUSALS = ("AnalysisException", "ParseException", "DeltaUnsupportedOperationException", "DeltaTableFeatureException")
"""What is raised for what a table is, or for what it can't become, wherever it stands in the trace of Java."""
_CONSTRAINTS = re.compile(
    r"\[(DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL_CONSTRAINT|DELTA_EXCEED_CHAR_VARCHAR|NOT_NULL_ASSERT|EXCEED_LIMIT_LENGTH)"
)
"""What is raised for a value that the table's constraints forbid."""
_BY_POSITION = "have types incompatible with the existing columns in their respective positions"
"""How a Hive metastore refuses an ALTER that leaves another column where one was. Iceberg then does not know whether it
was done; it was not.
"""
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


@contextmanager
def explained(source: str, target: LakeTable, table: TableId | None = None) -> Iterator[None]:
    """Spark's failures as ours: what went wrong with which table, without any value of a cell."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as failure:
        text = str(failure)
        if StopReason.ROW_MISSING in text:
            raise SchemaError(
                f"A change of table {source} does not carry all columns, and the {target.label} has no row of its key.",
                remedy="Take a new snapshot of the table, or set the sink's option 'missing_row' to 'insert'.",
            ) from failure
        if StopReason.NO_ORDER in text:
            raise no_order(source, target.label) from failure
        if StopReason.SEQUENCE_MISSING in text:
            raise SchemaError(
                f"A change for the {target.label} has no place in the order: its sequence is null.",
                remedy="Leave such rows out, or order by an expression that is never null.",
            ) from failure
        if _BY_POSITION in text:
            raise SchemaError(
                f"The Hive metastore compares columns by position, and refuses those that the {target.label} gets.",
                remedy="Set hive.metastore.disallow.incompatible.col.type.changes to false in its settings, and start "
                "it again. Iceberg's columns have numbers, by which readers find each one wherever it stands.",
            ) from failure
        refuse_misfit(failure)
        if any(kind in text for kind in WRONG_VALUE):
            raise SchemaError(
                f"A value of table {source} does not fit its column's type in the {target.label}.",
                remedy="Compare the source's column types with the table's; run with --debug to see Spark's message.",
            ) from failure
        error = unknown_failure(f"The {target.label} can't be written", failure)
        raise (error if table is None or not is_refusal(failure) else about(error, table)) from failure


def refuse_shared(targets: Iterable[LakeTable]) -> None:
    """Stop where tables of a batch would be written to one place.

    Raises:
        SinkError: with which.
    """
    # Without regard to case, because not every file system has it.
    for location, n in Counter(target.location.lower() for target in targets).items():
        if n > 1:
            raise SinkError(
                f"{n} tables of the batch would share the target {location}.",
                remedy="Give each source database its own sink with its own targets.",
            )
