"""Rule: what the driver says becomes one sentence with a way out and without a secret; LSNs go as constants."""

from __future__ import annotations

import pytest

from headrace import registry
from headrace.errors import CaptureError, ConnectError, OptionError
from headrace.sources.change_tables.connection import (
    Denied,
    MissingObject,
    PassingRefusal,
    StatementError,
)
from headrace.sources.connection import LostConnection
from headrace.sources.db2.connection import Db2Connection, written
from headrace.sources.db2.dialect import Db2
from headrace.sources.db2.driver import connection_string
from headrace.sources.db2.statements import Statements

SETTINGS = {"hostname": "db", "port": "50000", "database": "SALES", "user": "cdc", "password": "s3cret"}


def connection(monkeypatch, connect):
    monkeypatch.setattr(registry, "find", lambda kind, name: connect)
    return Db2Connection("any", SETTINGS, Db2(Statements("luw", "ASNCDC")))


@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        ('SQL30082N  Security processing failed with reason "24". PWD=s3cret SQLSTATE=08001 SQLCODE=-30082',
         ConnectError, "refused the login of user 'cdc'"),
        ('SQL1013N  The database "SALES" could not be found. SQLSTATE=42705 SQLCODE=-1013', ConnectError,
         "has no database 'SALES'"),
        ("SQL30081N  A communication error has been detected. SQLSTATE=08001 SQLCODE=-30081", LostConnection,
         "can't be reached"),
        ('SQL1336N  The remote host "db" was not found.  SQLSTATE=08001 SQLCODE=-1336', LostConnection,
         "can't be reached"),
    ],
)  # fmt: skip
def test_a_connection_that_fails_says_why(monkeypatch, said, kind, part):
    def connect(settings):
        raise RuntimeError(said)

    with pytest.raises(ConnectError, match=part) as caught:
        connection(monkeypatch, connect)
    assert type(caught.value) is kind
    assert "s3cret" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("said", "kind", "part"),
    [
        ('SQL0204N  "ASNCDC.CDC_S_T" is an undefined name.  SQLSTATE=42704 SQLCODE=-204', MissingObject,
         "has no object 'ASNCDC.CDC_S_T'"),
        ('SQL0551N  The statement failed because "CDC" may not "SELECT" from "S.T".  SQLSTATE=42501 SQLCODE=-551',
         Denied, "may not do that"),
        ('SQL0911N  The current transaction has been rolled back. Reason code "2".  SQLSTATE=40001 SQLCODE=-911',
         PassingRefusal, "rolled back"),
        ("SQL30081N  A communication error has been detected. SQLSTATE=08001 SQLCODE=-30081", LostConnection, "broke"),
        ("[CLI Driver] CLI0106E  Connection is closed. SQLSTATE=08003 SQLCODE=-99999", LostConnection, "broke"),
        ("SQL0104N  An unexpected token was found near s3cret.  SQLSTATE=42601 SQLCODE=-104", StatementError,
         "SQL0104N"),
    ],
)  # fmt: skip
def test_a_statement_that_fails_says_why(monkeypatch, said, kind, part):
    class Cursor:
        def execute(self, sql, parameters=None):
            raise RuntimeError(said)

        def close(self):
            return None

    class Connected:
        def cursor(self):
            return Cursor()

    with pytest.raises((CaptureError, ConnectError), match=part) as caught:
        connection(monkeypatch, lambda settings: Connected()).rows("SELECT 1")
    assert type(caught.value) is kind
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "parameters", "expected", "bound"),
    [
        ("a > ? AND b = ?", (b"\0\xff", "x"), "a > X'00FF' AND b = ?", ["x"]),
        ("MOD(n, ?) = 0", (7,), "MOD(n, 7) = 0", []),
        ("a = '?' AND \"?\" = ? -- ?\n/* ? */ AND b = ?", (1, 2), "a = '?' AND \"?\" = 1 -- ?\n/* ? */ AND b = 2", []),
        ("it''s ?", (3,), "it''s 3", []),
    ],
)
def test_bytes_and_whole_numbers_are_written_as_constants(sql, parameters, expected, bound):
    assert written(sql, parameters) == (expected, bound)


@pytest.mark.parametrize(("sql", "parameters"), [("a = ?", ()), ("a = 1", (1,))])
def test_parameters_that_do_not_fit_are_refused(sql, parameters):
    with pytest.raises(CaptureError, match="than parameters"):
        written(sql, parameters)


def test_the_connection_string_has_what_is_set():
    settings = {**SETTINGS, "security": "SSL", "connect_timeout_ms": 1500, "query_timeout_ms": 0}
    assert connection_string(settings) == (
        "HOSTNAME=db;PORT=50000;DATABASE=SALES;UID=cdc;PWD=s3cret;SECURITY=SSL;PROTOCOL=TCPIP;CONNECTTIMEOUT=2;"
    )


def test_a_setting_that_would_end_early_in_the_connection_string_is_refused_without_its_value():
    with pytest.raises(OptionError, match="'password' holds a semicolon") as caught:
        connection_string({**SETTINGS, "password": "a;b"})
    assert "a;b" not in str(caught.value)


def test_the_real_driver_reaches_for_the_server():
    pytest.importorskip("ibm_db", reason="no driver of Db2 here: pip install 'headrace[db2]'")
    settings = {**SETTINGS, "hostname": "127.0.0.1", "port": "9", "connect_timeout_ms": 3000}
    with pytest.raises(LostConnection, match="can't be reached") as caught:
        Db2Connection("ibm-db", settings, Db2(Statements("luw", "ASNCDC")))
    assert "s3cret" not in str(caught.value)
