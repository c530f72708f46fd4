"""Failures of Spark as they reach Python."""

from __future__ import annotations

from pyspark.errors import AnalysisException, PySparkException


class FromSpark(PySparkException):
    """A failure as the JVM's reaches Python."""

    def __init__(self, text: str, condition: str | None = None) -> None:
        super().__init__(message=text)
        self.condition = condition

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition


class Refused(FromSpark, AnalysisException):
    """One of the analysis."""
