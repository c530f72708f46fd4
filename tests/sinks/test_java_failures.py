"""Rule: of a failure that nobody foresaw a sentence has the root and no value, and "repeat" only where that helps."""

from __future__ import annotations

import pytest
from tests.sinks.spark_failures import FromSpark, Refused

from headrace.sinks.java_failures import unknown_failure

_TRACE = """An error occurred while calling o66.sql.
: {}
\tat org.apache.spark.sql.Dataset.collect(Dataset.scala:1)
\tat java.net.X.y(X.java:2)
"""
_AGAIN = "You can repeat the batch."


@pytest.mark.parametrize(
    ("failure", "root", "again"),
    [
        pytest.param(
            FromSpark(_TRACE.format("java.lang.IllegalArgumentException: Cannot add field k as an identifier field")),
            "IllegalArgumentException: Cannot add field k as an identifier field",
            False,
            id="what a table format refuses",
        ),
        pytest.param(
            FromSpark(
                _TRACE.format(
                    "org.apache.spark.sql.delta.DeltaTableFeatureException: [DELTA_FEATURES_REQUIRE] Your table needs "
                    "the feature(s): timestampNtz."
                )
            ),
            "DeltaTableFeatureException: [DELTA_FEATURES_REQUIRE] Your table needs the feature(s): timestampNtz",
            False,
            id="a feature",
        ),
        pytest.param(
            Refused(
                "A column with name `a b1` can't be resolved for 'secret' = 4711 and \"x\". "
                "SQLSTATE: 42703; line 1 pos 40;\n'Project [secret]",
                "UNRESOLVED_COLUMN",
            ),
            "Refused: [UNRESOLVED_COLUMN] A column with name `a b1` can't be resolved for … = … and …",
            False,
            id="a condition with keys in it",
        ),
        pytest.param(
            FromSpark(
                _TRACE.format(
                    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed\n"
                    "Caused by: org.apache.spark.SparkRuntimeException: [DUPLICATED_MAP_KEY] Duplicate key secret"
                )
            ),
            "SparkRuntimeException",
            False,
            id="a value that a row has",
        ),
        pytest.param(
            FromSpark(
                _TRACE.format(
                    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed\n"
                    "Caused by: java.io.IOException: No space left on device"
                )
            ),
            "IOException: No space left on device",
            True,
            id="a full disk",
        ),
        pytest.param(
            FromSpark(_TRACE.format("org.apache.hadoop.fs.s3a.AWSClientIOException: doesBucketExist: 403")),
            "AWSClientIOException: doesBucketExist: …",
            True,
            id="storage that is away",
        ),
        pytest.param(FromSpark("no"), "FromSpark: no", False, id="no trace at all"),
    ],
)
def test_an_unknown_failure_names_its_root(failure: Exception, root: str, again: bool) -> None:
    error = unknown_failure("The Delta table /lake/t can't be written", failure)
    assert error.message == f"The Delta table /lake/t can't be written ({root})."
    assert (_AGAIN in error.remedy) is again
    assert "--debug" in error.remedy
    assert "secret" not in str(error)
