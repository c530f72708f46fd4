"""Rule: what goes wrong with a server is one sentence that names it and the remedy, and never holds the password."""

import inspect

import mssql_python
import pytest
from mssql_python.connection_string_parser import _ConnectionStringParser

from headrace import registry
from headrace.errors import CaptureError, ConnectError, OptionError
from headrace.sources.change_tables.connection import MissingObject
from headrace.sources.sqlserver.connection import SqlServerConnection
from headrace.sources.sqlserver.driver import connect, connection_string

SETTINGS = {"hostname": "db", "port": "1433", "database": "sales", "user": "cdc", "password": "hunter2"}


class Refusing(Exception):
    """A driver's error, with SQL Server's number where it has one."""

    def __init__(self, text, number=None):
        super().__init__(text)
        self.number = number


def connected(monkeypatch, connect):
    monkeypatch.setattr(registry, "find", lambda kind, name: connect)
    return SqlServerConnection("any", SETTINGS)


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
            Refusing('[Microsoft]Cannot open database "sales" requested by the login. The login failed.'),
            "Server 'db:1433' has no database 'sales' that user 'cdc' may open. Check 'database'.",
        ),
        (
            Refusing("[Microsoft]Invalid value specified for connection string attribute 'Encrypt'"),
            "The driver refuses an option of the connection to server 'db:1433' ([Microsoft]Invalid value specified "
            "for connection string attribute 'Encrypt'). Correct the option that it names.",
        ),
        (
            Refusing("Driver Error: Failed to acquire an Entra ID access token for authentication type 'msi': no PWD"),
            "No access token for server 'db:1433' could be had (Driver Error: Failed to acquire an Entra ID access "
            "token for authentication type 'msi': no PWD). Check 'authentication', the identity that the process runs "
            "as, and its way to Microsoft Entra.",
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
    ("more", "text"),
    [
        ({}, "Server=db,1433;Database=sales;UID=cdc;PWD=hunter2;"),
        (
            {"port": "", "instance": "two", "password": "a;b}c"},
            "Server=db\\two;Database=sales;UID=cdc;PWD={a;b}}c};",
        ),
        (
            {"encrypt": "true", "trust_server_certificate": "false", "multi_subnet_failover": "true"},
            "Server=db,1433;Database=sales;UID=cdc;PWD=hunter2;Encrypt=yes;TrustServerCertificate=no;"
            "MultiSubnetFailover=yes;",
        ),
        (
            {"encrypt": "strict", "hostname_in_certificate": "h", "server_certificate": "/c.pem"},
            "Server=db,1433;Database=sales;UID=cdc;PWD=hunter2;Encrypt=strict;HostnameInCertificate=h;"
            "ServerCertificate=/c.pem;",
        ),
        (
            {"authentication": "activedirectorymsi", "user": "", "password": "", "application_intent": "readonly"},
            "Server=db,1433;Database=sales;Authentication=ActiveDirectoryMSI;ApplicationIntent=ReadOnly;",
        ),
        (
            {"authentication": "ActiveDirectoryManagedIdentity", "password": ""},
            "Server=db,1433;Database=sales;UID=cdc;Authentication=ActiveDirectoryMSI;",
        ),
        (
            {"authentication": "kerberos", "user": "", "password": ""},
            "Server=db,1433;Database=sales;Trusted_Connection=yes;",
        ),
    ],
)
def test_a_connection_string_says_what_the_options_say_in_the_drivers_words(more, text):
    assert connection_string(SETTINGS | more) == text


@pytest.mark.parametrize("option", ["authentication", "application_intent"])
def test_a_mode_that_the_driver_does_not_have_is_refused(option):
    with pytest.raises(OptionError, match=f"'{option}' can't be 'bogus'. Use one of "):
        connection_string({**SETTINGS, option: "bogus"})


@pytest.mark.parametrize("password", ["a;b}c", "{x}", " blank ", "=x", "}}", "a{b", "{", "]'\"\u00e4"])
def test_the_drivers_own_parser_reads_a_connection_string_as_it_was_meant(password):
    given = {
        **SETTINGS,
        "password": password,
        "database": "x]; DROP TABLE y--",
        "encrypt": "mandatory",
        "trust_server_certificate": "yes",
        "hostname_in_certificate": "h",
        "server_certificate": "/c.pem",
        "multi_subnet_failover": "no",
        "application_intent": "ReadOnly",
        "authentication": "SqlPassword",
    }
    # It refuses names that it does not know, and so it does with one that it keeps for itself (the program's name).
    read = _ConnectionStringParser(validate_keywords=True)._parse(connection_string(given))
    assert (read["pwd"], read["database"]) == (password, "x]; DROP TABLE y--")
    assert len(read) == 11


def test_the_driver_is_asked_for_what_it_has(monkeypatch):
    asked = []
    parameters = inspect.signature(mssql_python.connect).parameters
    monkeypatch.setattr(mssql_python, "connect", lambda *given, **named: asked.append((given, named)))
    connect(SETTINGS | {"connect_timeout_ms": 1500})
    connect(SETTINGS | {"connect_timeout_ms": 0})
    ((_, first), (_, second)) = asked
    assert set(first) <= set(parameters)
    # A login takes whole seconds; each statement is its own transaction, so that none is left open by an idle reader.
    assert first == {"autocommit": True, "attrs_before": {mssql_python.SQL_ATTR_LOGIN_TIMEOUT: 2}}
    assert second["attrs_before"] == {}
    # What connections and cursors are used for.
    assert {"cursor", "close", "timeout"} <= set(dir(mssql_python.Connection))
    assert {"execute", "fetchall", "arrow_reader", "close"} <= set(dir(mssql_python.Cursor))
    assert list(inspect.signature(mssql_python.Cursor.arrow_reader).parameters) == ["self", "batch_size"]
