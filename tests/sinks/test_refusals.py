"""Rule: what a target refuses of one table is told from what all tables may meet, by what the platform says."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.sinks.spark_failures import FromSpark, Refused

from headrace.changes import TableId
from headrace.errors import HeadraceError
from headrace.sinks.jdbc.database import Database, parse_address
from headrace.sinks.jdbc.dialect import TableName
from headrace.sinks.jdbc.mariadb import MariaDb
from headrace.sinks.jdbc.postgresql import Postgres
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


SOME = TableName("public", "a")
CODES: list[tuple[type[Database], str, list[str | int], bool]] = [
    (Postgres, "postgresql", ["22003", "23502", "23505", "23514", "42501", "42P01", "42P07", "42804"], ONE),
    (Postgres, "postgresql", ["0A000", "2BP01", "54011", "44000", "P0001"], ONE),
    (Postgres, "postgresql", ["08006", "28P01", "40001", "40P01", "53100", "53200", "53300", "55P03"], ALL),
    (Postgres, "postgresql", ["57014", "57P01", "58030", "25P02", "25006", "XX000"], ALL),
    (MariaDb, "mariadb", [1048, 1054, 1059, 1062, 1118, 1142, 1146, 1264, 1406, 1451, 1644, 3819, 4025], ONE),
    (MariaDb, "mariadb", [1021, 1037, 1040, 1044, 1045, 1114, 1205, 1213, 1290, 2006, 2013, 3024], ALL),
]


PASSING: dict[str, list[str | int]] = {
    "postgresql": [
        *("08000", "08006", "08P01", "25P03", "40001", "40P01", "53100", "53200", "53300"),
        *("55006", "55P03", "57P01", "57P02", "57P03", "58030"),
    ],
    "mariadb": [0, 1021, 1037, 1040, 1053, 1205, 1213, 1317, 1927, 2003, 2006, 2013, 3101, 3572, 4031],
}
STAYING: dict[str, list[str | int]] = {
    # Unknown states too, and the class of errors of which the server does not know more.
    "postgresql": [
        *("0A000", "0L000", "22003", "23505", "25006", "25P02", "26000", "28P01", "2BP01", "3D000", "3F000", "42501"),
        *("42P01", "44000", "54011", "55000", "57014", "72000", "F0000", "HV000", "P0001", "XX000", "XX001", "ZZ999"),
    ],
    "mariadb": [1044, 1045, 1048, 1062, 1064, 1105, 1114, 1146, 1236, 1290, 1364, 1366, 1452, 1836, 4025, 3024, 9999],
}


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(("kind", "name"), [(Postgres, "postgresql"), (MariaDb, "mariadb")])
def test_a_batch_is_to_be_repeated_only_after_a_transient_failure(kind: Any, name: str, again: bool) -> None:
    database = kind(parse_address(f"{name}://h:1/d", "u", "p", None))
    codes = (PASSING if again else STAYING)[name]
    said = {code: "You can repeat the batch" in str(database.explain(FromDriver(code), A, SOME)) for code in codes}
    assert said == dict.fromkeys(codes, again)


@pytest.mark.parametrize(("failure", "again"), [("OperationalError", True), ("DataError", False)])
def test_a_connection_to_postgresql_that_broke_has_no_state_and_is_transient(failure: str, again: bool) -> None:
    database = Postgres(parse_address("postgresql://h:1/d", "u", "p", None))
    error = database.explain(getattr(psycopg, failure)("a value"), A, SOME)
    assert ("You can repeat the batch" in str(error), "a value" in str(error)) == (again, False)


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
            database.explaining(A, SOME, alone=alone),
        ):
            raise FromDriver(code)
        assert caught.value.table == (A if whose and alone else None)
        assert "text with a value" not in str(caught.value)
