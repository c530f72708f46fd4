"""Sessions of a MySQL or MariaDB server: for SQL and the rows of snapshots, and for the bytes of its binary log.

The driver makes the connection and logs in. What is much is read from its socket by ourselves.
"""

from __future__ import annotations

import os
import random
import ssl
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from headrace.errors import HeadraceError, OptionError
from headrace.passwords import password_of
from headrace.sources.connection import DriverConnection, LostConnection
from headrace.sources.mysql.options import MysqlSettings
from headrace.sources.mysql.refusals import Endpoint, MysqlError, not_connected, refused, session_refused
from headrace.wire.mysql_session import WITHOUT_LIMITS
from headrace.wire.packet_kernels import LAST, MORE, WRONG, take_payloads

MYSQL, PERCONA, MARIADB = "mysql", "percona", "mariadb"
"""The kinds of servers."""
_PORT = 3306
_BLOCK = 1 << 20
_GATHERED = _BLOCK // 4
_HEADER = 4
_QUERY, _DUMP = 3, 0x12
_NON_BLOCK, _ANNOTATE = 1, 2
_EVENT, _ERROR, _END, _LOCAL_FILE = 0, 0xFF, 0xFE, 0xFB
_SILENCE_S = 60.0
"""How long a dump may give nothing: with NON_BLOCK the server always has something to send, or the end."""
_OWN_IDS = (2**31, 2**32 - 2)
_U32 = 2**32 - 1
_LONGEST_WAIT_S = 365 * 86400
# How a session writes values as text, whatever the server sets. Snapshot and stream are to be equal.
_SESSION = (
    "SET NAMES utf8mb4, time_zone = '+00:00', sql_mode = '', group_concat_max_len = 1073741824, "
    f"wait_timeout = {_LONGEST_WAIT_S // 2}, net_write_timeout = 3600, {WITHOUT_LIMITS}"
)


@dataclass(frozen=True)
class ServerKind:
    """What a server is.

    Args:
        name: `mysql`, `percona` or `mariadb`.
        version: its numbers, such as (10, 11, 19).
        uuid: what tells it from other servers: `server_uuid` of MySQL, `server_uid` of MariaDB; empty on a MariaDB
            before 10.5.26, which has none.
        folds_names: whether names of databases and tables are the same in capitals.
    """

    name: str
    version: tuple[int, ...]
    uuid: str
    folds_names: bool = False

    @property
    def is_mariadb(self) -> bool:
        """Whether it is a MariaDB, whose log has events of its own."""
        return self.name == MARIADB

    @property
    def log_status(self) -> str:
        """The statement that says where the log is written."""
        return "SHOW BINARY LOG STATUS" if not self.is_mariadb and self.version >= (8, 2) else "SHOW MASTER STATUS"


class Connection(DriverConnection):
    """A session for SQL; each statement is a transaction of its own unless one was begun.

    Not shared between threads and never pickled. It has UTC, UTF-8 and no sql_mode.

    Args:
        settings: the source's options.
    """

    def __init__(self, settings: MysqlSettings) -> None:
        password = password_of(settings)
        super().__init__({"user": settings.user, "password": password})
        port = int(settings.port or _PORT)
        self._position = Endpoint(f"{settings.hostname}:{port}", settings.user)
        self._settings = settings
        pymysql = _driver()
        try:
            self._connection = _session_type()(
                host=settings.hostname,
                port=port,
                user=settings.user,
                # The driver would take letters beyond latin1 for an error.
                password=password.encode(),
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=settings.connect_timeout_ms / 1000,
                program_name="headrace",
                **_encryption(settings),
            )
        except (pymysql.MySQLError, RuntimeError, OSError) as error:
            number, text = _said(error)
            raise not_connected(self._position, number, self._clean(Exception(text))) from None
        self._buffer = np.empty(_BLOCK, np.uint8)
        self._begin = self._filled = self._number = 0
        self._reading = False
        try:
            self.run(_SESSION)
        except MysqlError as error:
            self.close()
            raise session_refused(self._position, error) from error
        self._kind: ServerKind | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self._position

    @property
    def server(self) -> ServerKind:
        if self._kind is None:
            [(version, comment, fold)] = self.rows("SELECT @@version, @@version_comment, @@lower_case_table_names")
            is_mariadb = "mariadb" in version.lower()
            name = MARIADB if is_mariadb else PERCONA if "percona" in comment.lower() else MYSQL
            variable = "server_uid" if is_mariadb else "server_uuid"
            uuid = self.variables(variable).get(variable, "")
            # Behind a proxy and in front of 10.0 the version of MariaDB may begin with 5.5.5-.
            numbers = version.removeprefix("5.5.5-").split("-")[0].split(".")
            version = tuple(int(part) for part in numbers if part.isdecimal())
            self._kind = ServerKind(name, version, uuid, bool(int(fold)))
        return self._kind

    @property
    def id(self) -> int:
        """The number of the session, which KILL takes."""
        return int(self._connection.thread_id())

    def variables(self, *names: str) -> dict[str, str]:
        """The server's global settings as texts; without those that it does not have."""
        listed = ", ".join(["%s"] * len(names))
        return dict(self.rows(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({listed})", names))

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result, as Python's values.

        Args:
            sql: the statement; with parameters `%s` for each, and `%%` for a percent sign.
            params: the parameters.

        Raises:
            MysqlError: the server refused the statement; `number` says why.
            LostConnection: the connection broke.
        """
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, tuple(params) or None)
                return list(cursor.fetchall())
        except (_driver().MySQLError, OSError) as error:
            raise self._refused(error) from None

    def printed_rows(self, sql: str, count: int) -> Iterator[list[tuple[str | None, ...]]]:
        """The rows of a SELECT whose columns are all texts, streamed and decoded by the driver.

        Args:
            sql: the statement.
            count: how many rows come at once.

        Raises:
            MysqlError: the server refused the statement.
            LostConnection: the connection broke.
        """
        try:
            with self._connection.cursor(_driver().cursors.SSCursor) as cursor:
                cursor.execute(sql)
                while rows := cursor.fetchmany(count):
                    yield list(rows)
        except (_driver().MySQLError, OSError) as error:
            raise self._refused(error) from None

    def column_names(self, sql: str) -> list[str]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return [column[0] for column in cursor.description or ()]
        except (_driver().MySQLError, OSError) as error:
            raise self._refused(error) from None

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """The first value of the first row; null without a row."""
        rows = self.rows(sql, params)
        return rows[0][0] if rows else None

    def run(self, sql: str) -> None:
        """A statement without a result."""
        self.rows(sql)

    def text_rows(self, sql: str) -> Iterator[memoryview]:
        """The rows of a SELECT as the server sends them, streamed: packets of the text protocol, headers included.

        Args:
            sql: the statement, which takes no parameters.

        Returns:
            Blocks of whole rows; a row above 16 MB has several packets. A block may be kept. Where not all of them are
            taken the session is closed.

        Raises:
            MysqlError: the server refused the statement, also in the middle.
            LostConnection: the connection broke.
        """
        self._send(bytes([_QUERY]) + sql.encode())
        first = self._payload()
        if first[0] in (0, _LOCAL_FILE):
            raise refused(self._position, 1064, "the statement has no rows")
        while not self._is_end(self._payload()):
            # Descriptions of the columns, up to the end of their list.
            pass
        out = np.empty(0, np.uint8)
        ends = np.empty(5, np.int64)
        try:
            while True:
                begin = self._begin
                take_payloads(self._buffer, begin, self._filled, self._number, -1, out, ends)
                self._begin, self._number = int(ends[0]), int(ends[1])
                if self._begin > begin:
                    yield self._buffer[begin : self._begin].copy().data
                if ends[3] == LAST:
                    self._payload()
                    self._reading = False
                    return
                self._require_order(int(ends[3]))
                self._receive(int(ends[4]))
        finally:
            if self._reading:
                # Half of a result is in the way of any other statement.
                self._force_close()

    def _send(self, payload: bytes) -> None:
        """Begin a command whose answer is read from the socket."""
        self._begin = self._filled = 0
        try:
            self._connection._execute_command(payload[0], payload[1:])
        except (_driver().MySQLError, OSError) as error:
            raise self._refused(error) from None
        self._number = 1
        self._reading = True
        self._connection._sock.settimeout(self._silence)

    _silence: float | None = None

    def _payload(self) -> bytes:
        """The next payload of a command's answer, one of a single packet; an error is raised."""
        while True:
            length = int.from_bytes(self._buffer[self._begin : self._begin + 3].tobytes(), "little")
            whole = self._begin + _HEADER + length
            if self._begin + _HEADER <= self._filled and whole <= self._filled:
                break
            self._receive(_HEADER if self._begin + _HEADER > self._filled else _HEADER + length)
        if int(self._buffer[self._begin + 3]) != self._number or not length:
            self._require_order(WRONG)
        payload = self._buffer[self._begin + _HEADER : whole].tobytes()
        self._begin, self._number = whole, (self._number + 1) & 255
        if payload[0] == _ERROR:
            self._reading = False
            raise self._answered(payload)
        return payload

    def _is_end(self, payload: bytes) -> bool:
        return payload[0] == _END and len(payload) < 9

    def _require_order(self, why: int) -> None:
        if why == WRONG:
            self._force_close()
            raise LostConnection(
                f"{str(self._position).capitalize()} sent packets out of order.", remedy="Check what stands between."
            )

    def _receive(self, wanted: int) -> None:
        """Take what the server sent after what is there; make room for a payload of so many bytes."""
        left = self._filled - self._begin
        if self._begin and (left == 0 or self._begin + wanted > self._buffer.size or left < _BLOCK // 16):
            self._buffer[:left] = self._buffer[self._begin : self._filled].copy()
            self._begin, self._filled = 0, left
        if wanted > self._buffer.size:
            grown = np.empty(max(2 * self._buffer.size, wanted + _BLOCK), np.uint8)
            grown[:left] = self._buffer[self._begin : self._filled]
            self._buffer, self._begin, self._filled = grown, 0, left
        try:
            size = self._connection._rfile.readinto1(self._buffer.data[self._filled :])
        except OSError as error:
            self._force_close()
            raise self._refused(error) from None
        if not size:
            self._force_close()
            raise LostConnection(
                f"The connection to {self._position} broke: its socket was closed in the middle of an answer.",
                remedy="Check the server and the network; the run goes on where it stopped.",
            )
        self._filled += size

    def _force_close(self) -> None:
        self._reading = False
        self._connection._force_close()

    def _answered(self, payload: bytes) -> HeadraceError:
        text = payload[9:] if payload[3:4] == b"#" else payload[3:]
        return refused(self._position, struct.unpack_from("<H", payload, 1)[0], text.decode(errors="replace"))

    def _refused(self, error: Exception) -> HeadraceError:
        number, text = _said(error)
        return refused(self._position, number, self._clean(Exception(text)))


class BinlogConnection(Connection):
    """A session that reads the binary log from a position to where it ends.

    It is closed in the middle of a dump without a word to the server, which finds that out.

    Args:
        settings: the source's options.
    """

    _silence = _SILENCE_S

    def __init__(self, settings: MysqlSettings) -> None:
        super().__init__(settings)
        self._ended = True
        # Servers refuse readers that don't know of checksums; each file says for itself whether it has some.
        self.run("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        if self.server.is_mariadb:
            # Without it GTIDs come as statements without a meaning.
            self.run("SET @mariadb_slave_capability = 4")

    def dump(self, file: str, position: int, *, server_id: int | None = None, statements: bool = False) -> None:
        """Begin to read; first come an artificial ROTATE, which names the file, and the file's FORMAT_DESCRIPTION.

        The server goes on into the files that follow, up to the end of the last one.

        Args:
            file: the file's name.
            position: where an event begins; above 4 GiB it can't be asked for.
            server_id: the number of this reader; one of the option's, or a random one, when None.
            statements: whether a MariaDB sends the statements of rows, too (ANNOTATE_ROWS).

        Raises:
            MysqlError: the login may not read the log. Whether the position is there is known when the first event is
                received.
        """
        if position > _U32:
            raise ValueError("a dump begins in the first 4 GiB of a file")
        flags = _NON_BLOCK | (_ANNOTATE if statements and self.server.is_mariadb else 0)
        number = server_id if server_id is not None else reader_id(self._settings)
        self._send(struct.pack("<BIHI", _DUMP, position, flags, number) + file.encode())
        self._ended = False

    def receive(self) -> memoryview:
        """The next whole events, as many as are there, one after another as in a file of the log.

        Returns:
            The events, which may be kept; nothing at the end of the log.

        Raises:
            LostConnection: the connection broke, or the server ended the session, before the end of the log.
            DataLossError: the file is not there any more.
            MysqlError: the position is not there, or an event is too large for the server.
        """
        ends = np.empty(5, np.int64)
        while not self._ended:
            take_payloads(self._buffer, self._begin, self._filled, self._number, -1, self._buffer, ends)
            if ends[3] == MORE and self._filled - self._begin < _GATHERED:
                # The server sends small pieces, and never waits with one: what comes is taken together.
                self._receive(int(ends[0]) - self._begin + int(ends[4]))
                continue
            out = np.empty(self._filled - self._begin, np.uint8)
            take_payloads(self._buffer, self._begin, self._filled, self._number, 1, out, ends)
            self._begin, self._number = int(ends[0]), int(ends[1])
            if ends[2]:
                return out.data[: int(ends[2])]
            if ends[3] == LAST:
                self._ended = self._is_end(self._payload())
                self._reading = False
                break
            self._require_order(int(ends[3]))
            self._receive(int(ends[4]))
        return memoryview(b"")

    def close(self) -> None:
        """Close the session; in the middle of a dump the socket only, because the server hears nothing then."""
        if self._reading:
            self._force_close()
        super().close()


def reader_id(settings: MysqlSettings) -> int:
    """A number for one reader: of the option's range, else of a range that no replica is likely to be in."""
    first, _, last = settings.server_id.partition("-")
    low, high = (int(first), int(last or first)) if first else _OWN_IDS
    # Tasks are forked, and copies of one generator would give the same number.
    return random.Random(os.urandom(8)).randint(low, high)


def connect(settings: MysqlSettings) -> Connection:
    """Open a session for SQL.

    Raises:
        OptionError: the driver is not installed.
        ConnectError: the server is not there (`LostConnection`) or refuses the login.
    """
    return Connection(settings)


def connect_binlog(settings: MysqlSettings) -> BinlogConnection:
    """Open a session that reads the binary log.

    Raises:
        OptionError: the driver is not installed.
        ConnectError: the server is not there (`LostConnection`) or refuses the login.
    """
    return BinlogConnection(settings)


def _said(error: Exception) -> tuple[int, str]:
    """A driver's number and sentence."""
    if len(error.args) > 1 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error)


def _encryption(settings: MysqlSettings) -> dict[str, Any]:
    if settings.sslmode == "disabled":
        return {"ssl_disabled": True}
    if settings.sslmode == "preferred" and not settings.sslcert:
        return {}
    verifies = settings.sslmode.startswith("verify")
    try:
        context = _unverified()
        if verifies or settings.sslrootcert:
            context = ssl.create_default_context(cafile=settings.sslrootcert or None)
            # The certificates that servers make for themselves are not in the strict form.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.check_hostname = settings.sslmode == "verify_identity"
            context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        if settings.sslcert:
            context.load_cert_chain(settings.sslcert, settings.sslkey or None)
    except OSError as error:
        raise OptionError(
            f"A file of 'sslrootcert', 'sslcert' or 'sslkey' can't be read ({error}).", remedy="Name files in PEM."
        ) from None
    return {"ssl": context}


def _driver() -> Any:
    try:
        import pymysql
    except ImportError as error:
        raise OptionError(
            "The MySQL driver PyMySQL is not installed.", remedy="Run: pip install 'headrace[mysql]'."
        ) from error
    return pymysql


def login_of(connection: Connection) -> str:
    """The login as the server knows it, in statements."""
    name, _, host = str(connection.value("SELECT CURRENT_USER()")).rpartition("@")
    return "@".join("'" + part.replace("'", "''") + "'" for part in (name, host))


def _unverified() -> ssl.SSLContext:
    """Encryption without a look at the server's certificate; the authorities that the machine trusts, which take 20 ms
    to read, are left alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@cache
def _session_type() -> Any:
    """The driver's session; where it chooses encryption by itself, it verifies nothing, and reads no authorities."""

    class Session(_driver().connections.Connection):  # type: ignore[misc]
        def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
            return given if isinstance(given, ssl.SSLContext) else _unverified()

    return Session
