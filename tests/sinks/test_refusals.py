"""Rule: what a target refuses of one table is told from what all tables may meet, by what the platform says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sinks.spark_failures import FromSpark, Refused

from headrace.changes import TableId
from headrace.errors import HeadraceError
from headrace.sinks.jdbc.address import parse_address
from headrace.sinks.jdbc.database import Database
from headrace.sinks.jdbc.dialect import TableName
from headrace.sinks.jdbc.mariadb.dialect import MariaDb
from headrace.sinks.jdbc.postgresql.dialect import Postgres
from headrace.sinks.lake.refusals import is_refusal

A = TableId("shop", "dbo", "a")
ONE, ALL = True, False


@pytest.mark.parametrize(
    ("failure", "whose"),
    [
        pytest.param(Refused("no", "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"), ONE, id="a refused ALTER"),
        pytest.param(Refused("no", "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"), ONE, id="a name"),
        pytest.param(Refused("no", "UNRESOLVED_COLUMN.WITH_SUGGESTION"), ONE, id="a column that is not there"),
        pytest.param(
            FromSpark("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint short", None), ONE, id="a constraint"
        ),
        pytest.param(
            FromSpark("x\norg.apache.spark.sql.delta.DeltaTableFeatureException: [DELTA_FEATURES_REQUIRE] no"),
            ONE,
            id="a feature of the table",
        ),
        pytest.param(Refused("no such", "CATALOG_NOT_FOUND"), ALL, id="a catalogue that is not there"),
        pytest.param(Refused("no", None), ALL, id="nobody says what"),
        pytest.param(
            Refused("org.apache.hadoop.hive.ql.metadata.HiveException: away", "_LEGACY_ERROR_TEMP_3065"),
            ALL,
            id="a metastore that is away",
        ),
        pytest.param(FromSpark("Caused by: java.io.IOException: No space left on device"), ALL, id="a full disk"),
        pytest.param(
            Refused("Caused by: java.net.ConnectException: Connection refused", "DELTA_X"), ALL, id="a lost connection"
        ),
        pytest.param(FromSpark("java.nio.file.AccessDeniedException: s3a://b/t: 403"), ALL, id="a login"),
        pytest.param(FromSpark("java.lang.OutOfMemoryError: Java heap space"), ALL, id="memory"),
        pytest.param(
            FromSpark("org.apache.spark.sql.delta.ConcurrentAppendException: AnalysisException: files"),
            ALL,
            id="a commit in between",
        ),
        pytest.param(FromSpark("Job aborted due to stage failure: ExecutorLostFailure"), ALL, id="a lost executor"),
    ],
)
def test_a_failure_of_spark(failure: Exception, whose: bool) -> None:
    assert is_refusal(failure) is whose


def test_the_frames_of_a_trace_are_no_reason() -> None:
    trace = "no\n\tat java.io.ObjectStreamClass.invoke(ObjectStreamClass.java:1)\n\tat java.net.X.y(X.java:2)"
    assert is_refusal(Refused(trace, "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES"))


class FromDriver(Exception):
    """A failure of psycopg or PyMySQL."""

    def __init__(self, code: str | int) -> None:
        super().__init__(code, "text with a value")
        self.sqlstate = code


CODES: list[tuple[type[Database], str, list[str | int], bool]] = [
    (Postgres, "postgresql", ["22003", "23502", "23505", "23514", "42501", "42P01", "42P07", "42804"], ONE),
    (Postgres, "postgresql", ["0A000", "2BP01", "54011", "44000", "P0001"], ONE),
    (Postgres, "postgresql", ["08006", "28P01", "40001", "40P01", "53100", "53200", "53300", "55P03"], ALL),
    (Postgres, "postgresql", ["57014", "57P01", "58030", "25P02", "25006", "XX000"], ALL),
    (MariaDb, "mariadb", [1048, 1054, 1059, 1062, 1118, 1142, 1146, 1264, 1406, 1451, 1644, 3819, 4025], ONE),
    (MariaDb, "mariadb", [1021, 1037, 1040, 1044, 1045, 1114, 1205, 1213, 1290, 2006, 2013, 3024], ALL),
]


@pytest.mark.parametrize(
    ("kind", "name", "code", "whose"),
    [(kind, name, code, whose) for kind, name, codes, whose in CODES for code in codes],
)
def test_a_failure_of_a_database(kind: Any, name: str, code: str | int, whose: bool) -> None:
    database = kind(parse_address(f"{name}://h:1/d", "u", "p", None))
    database.troubles = lambda: FromDriver
    for alone in (True, False):
        with (
            pytest.raises(HeadraceError) as caught,
            database.explaining(A, TableName("public", "a"), alone=alone),
        ):
            raise FromDriver(code)
        assert caught.value.table == (A if whose and alone else None)
        assert "text with a value" not in str(caught.value)
