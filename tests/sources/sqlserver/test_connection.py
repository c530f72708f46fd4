"""Rule: what goes wrong with a server is one sentence that names it and the remedy, and never holds the password."""

import pytest

from headrace import registry
from headrace.errors import CaptureError, ConnectError
from headrace.sources.sqlserver.connection import Connection, MissingObject
from headrace.sources.sqlserver.driver import connection_string

SETTINGS = {"hostname": "db", "port": "1433", "database": "sales", "user": "cdc", "password": "hunter2"}


class Refusing(Exception):
    """A driver's error, with SQL Server's number where it has one."""

    def __init__(self, text, number=None):
        super().__init__(text)
        self.number = number


def connected(monkeypatch, connect):
    monkeypatch.setattr(registry, "find", lambda kind, name: connect)
    return Connection("any", SETTINGS)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            Refusing("Login failed for user 'cdc'. PWD=hunter2", 18456),
            "Server 'db:1433' refused the login of user 'cdc'. "
            "Check 'user' and 'password', and that the login may connect to the database.",
        ),
        (
            Refusing('Cannot open database "sales" requested by the login.', 4060),
            "Server 'db:1433' has no database 'sales' that user 'cdc' may open. Check 'database'.",
        ),
        (
            Refusing("TCP Provider: timeout; PWD=hunter2;"),
            "Server 'db:1433' can't be reached (TCP Provider: timeout; PWD=***;). "
            "Check 'hostname', 'port', the network and 'encrypt'.",
        ),
        (
            Refusing("DDBC Error: Failed to load the driver. Please read the documentation"),
            "The SQL Server driver mssql-python lacks system libraries. "
            "Install them; on Debian: apt-get install libltdl7 libkrb5-3 libgssapi-krb5-2.",
        ),
    ],
)
def test_a_connection_that_fails_says_why(monkeypatch, error, sentence):
    def connect(settings):
        raise error

    with pytest.raises(ConnectError) as found:
        connected(monkeypatch, connect)
    assert str(found.value) == sentence


class Cursor:
    def __init__(self, error):
        self.error = error

    def execute(self, sql, parameters=()):
        raise self.error

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("error", "kind", "part"),
    [
        (Refusing("Invalid object name 'cdc.x_CT'."), MissingObject, "has no object 'cdc.x_CT'"),
        (
            Refusing("The SELECT permission was denied on the object 'x', database 'sales', schema 'dbo'."),
            CaptureError,
            "GRANT SELECT ON [dbo].[x] TO [cdc]",
        ),
        (Refusing("Deadlock with hunter2"), CaptureError, "Deadlock with ***"),
    ],
)
def test_a_statement_that_fails_says_why(monkeypatch, error, kind, part):
    class Server:
        def cursor(self):
            return Cursor(error)

    connection = connected(monkeypatch, lambda settings: Server())
    with pytest.raises(kind) as found:
        connection.rows("SELECT 1")
    assert part in str(found.value)
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (SETTINGS, "SERVER=db,1433;DATABASE=sales;UID=cdc;PWD=hunter2;"),
        (
            {**SETTINGS, "port": "", "instance": "two", "password": "a;b}c"},
            "SERVER=db\\two;DATABASE=sales;UID=cdc;PWD={a;b}}c};",
        ),
    ],
)
def test_a_connection_string_is_safe_for_any_password(settings, text):
    assert connection_string(settings) == text
