"""Spark SQL that stops a query, in words that are found again in what Spark makes of them.

A query stops for a reason that its expression can put into a sentence (`refusal`), or for one that only the code that
started it can explain (`StopReason`). No other text of Headrace is ever raised in a query.
"""

from __future__ import annotations

import re
from enum import StrEnum

from headrace import errors
from headrace.errors import FormatError, HeadraceError

_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] headrace\.errors\.([A-Za-z]+): ([^\n\r]+?) SQLSTATE")


class StopReason(StrEnum):
    """A reason that the code which started the query explains."""

    ROW_MISSING = "HEADRACE_ROW_MISSING"
    """A change without all columns met no row of its key in the target."""
    SEQUENCE_MISSING = "HEADRACE_SEQUENCE_MISSING"
    """A change has no place in the order."""
    NO_ORDER = "HEADRACE_NO_ORDER"
    """Two changes of one row come from different sequences."""
    LATE_CHANGE = "HEADRACE_LATE_CHANGE"
    """Changes were laid over one another, and the target's row is newer than one of them."""
    MAYBE_TOO_LARGE = "HEADRACE_MAYBE_TOO_LARGE"
    """A Kafka message may be too large; it has to be weighed exactly."""
    NEW_TOPIC = "HEADRACE_NEW_TOPIC"
    """A message goes to a topic whose partitions are not known yet."""

    @property
    def sql(self) -> str:
        """Spark SQL that stops the query with it."""
        return f"raise_error('{self}')"


def refusal(sentence: str, kind: type[HeadraceError] = FormatError) -> str:
    """Spark SQL that stops the query with a `HeadraceError`.

    Args:
        sentence: Spark SQL for the sentence, remedy included.
        kind: the error, one of those in `headrace.errors`.
    """
    return f"raise_error(concat('{errors.__name__}.{kind.__name__}: ', {sentence}))"


def refused(text: str) -> HeadraceError | None:
    """The error of a `refusal` in what Spark made of it; None where there is none."""
    match = _RAISED.search(text)
    return getattr(errors, match[1])(match[2].strip()) if match is not None else None
