"""Sessions of a PostgreSQL server: for SQL and COPY, and for the stream of a replication slot."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, OptionError
from headrace.passwords import password_of
from headrace.sources.connection import DriverConnection, LostConnection
from headrace.sources.postgresql import lsn
from headrace.sources.postgresql.options import PostgresSettings
from headrace.sources.postgresql.refusals import Endpoint, identifier, literal, not_connected, refused

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

_PORT = "5432"
_MANY_BYTES = 1 << 20
_STATUS_SECONDS = 1.0
_ASK_SECONDS = 0.25
_KEEPALIVE_BYTES = 18
_KEEPALIVE, _STATUS = b"k"[0], b"r"
_EPOCH_MICROSECONDS = 946_684_800_000_000
_NAME_BYTES = 63

# How a session writes values as text, and that it reads all rows, whatever the server, the database or the role sets.
# Snapshot and stream are to be equal, so all sessions have them.
_SESSION = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "search_path": "pg_catalog",
    "row_security": "off",
    # A search in a GIN index would leave out rows.
    "gin_fuzzy_search_limit": "0",
    # Publications are made and altered, and the user's heartbeat writes.
    "default_transaction_read_only": "off",
    "exit_on_error": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
}


class Connection(DriverConnection):
    """A session for SQL; each statement is a transaction of its own unless BEGIN was run.

    Not shared between threads and never pickled. Values come as Python's; the texts of rows to capture come by `copy`.

    Args:
        settings: the source's options.
    """

    _replication = False

    def __init__(self, settings: PostgresSettings) -> None:
        password = password_of(settings)
        super().__init__({"user": settings.user, "password": password})
        port = settings.port or _PORT
        self._endpoint = Endpoint(f"{settings.hostname}:{port}", settings.database, settings.user, self._replication)
        psycopg = _driver()
        try:
            self._connection = psycopg.connect(
                **_parameters(settings, port, password),
                **({"replication": "database"} if self._replication else {}),
                autocommit=True,
                # A replication session takes no parameters beside the statement.
                cursor_factory=psycopg.ClientCursor,
            )
        except psycopg.Error as error:
            raise not_connected(self._endpoint, self._clean(error)) from None
        self._pg: PGconn = self._connection.pgconn
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)
        if self.version >= 170000:
            self.run("SET transaction_timeout = 0")

    @property
    def version(self) -> int:
        """The server's version: 150018 is 15.18."""
        return int(self._pg.server_version)

    @property
    def pid(self) -> int:
        """The number of the server's process of this session."""
        return int(self._pg.backend_pid)

    @property
    def in_transaction(self) -> bool:
        """Whether BEGIN was run and the transaction has neither ended nor failed."""
        return bool(self._pg.transaction_status == _driver().pq.TransactionStatus.INTRANS)

    @property
    def endpoint(self) -> Endpoint:
        return self._endpoint

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a small result.

        Args:
            sql: the statement; with parameters `%s` for each, and `%%` for a percent sign.
            params: the parameters.

        Raises:
            PostgresError: the server refused the statement.
            LostConnection: the connection broke.
        """
        try:
            cursor = self._connection.execute(sql, params or None)
            return cursor.fetchall() if cursor.description else []
        except _driver().Error as error:
            raise self._refused(error) from None

    def printed_rows(self, sql: str, count: int) -> Iterator[list[tuple[str | None, ...]]]:
        """The rows of a SELECT whose columns are all texts, streamed by a cursor of the server.

        Args:
            sql: the statement; a transaction was begun before.
            count: how many rows come at once.

        Raises:
            PostgresError: the server refused the statement.
            LostConnection: the connection broke.
        """
        try:
            with self._connection.cursor("headrace_printed") as cursor:
                cursor.execute(sql)
                while rows := cursor.fetchmany(count):
                    yield rows
        except _driver().Error as error:
            raise self._refused(error) from None

    def column_names(self, sql: str) -> list[str]:
        try:
            cursor = self._connection.execute(sql)
            return [column.name for column in cursor.description or ()]
        except _driver().Error as error:
            raise self._refused(error) from None

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """The first value of the first row; null without a row."""
        rows = self.rows(sql, params)
        return rows[0][0] if rows else None

    def run(self, sql: str) -> None:
        """A statement without a result."""
        self.rows(sql)

    def rows_within(
        self, sql: str, seconds: float, explain: Callable[[int], HeadraceError]
    ) -> list[tuple[str | None, ...]]:
        """All rows of a statement that may have to wait, as texts.

        Args:
            sql: the statement.
            seconds: how long it may take.
            explain: the error to raise when it takes longer; asked while it still waits, with the number of the
                server's process. The statement is cancelled then.

        Raises:
            PostgresError: the server refused the statement.
            LostConnection: the connection broke.
        """
        self._send(sql)
        until = time.monotonic() + seconds
        while self._pg.is_busy():
            if not self._wait(until - time.monotonic()) and time.monotonic() >= until:
                error = explain(self.pid)
                self._connection.cancel_safe()
                self._rest()
                raise error
        result = self._pg.get_result()
        self._require(result, "TUPLES_OK")
        assert result is not None
        values = [[result.get_value(row, column) for column in range(result.nfields)] for row in range(result.ntuples)]
        self._rest()
        return [tuple(None if value is None else value.decode() for value in row) for row in values]

    def copy(self, sql: str) -> Iterator[bytes]:
        """What `COPY ... TO STDOUT` gives, in blocks of whole lines, streamed.

        Raises:
            PostgresError: the server refused the statement, also in the middle.
            LostConnection: the connection broke.
        """
        self._send(sql)
        self._require(self._result(), "COPY_OUT")
        ended = False
        try:
            block, size = [], 0
            while True:
                status, data = self._pg.get_copy_data(1)
                if status > 0:
                    block.append(bytes(data))
                    size += status
                    if size >= _MANY_BYTES:
                        yield b"".join(block)
                        block, size = [], 0
                elif status == 0:
                    self._wait()
                else:
                    break
            ended = True
            self._require(self._result(), "COMMAND_OK")
            self._rest()
            if block:
                yield b"".join(block)
        finally:
            if not ended and self._pg.status == _driver().pq.ConnStatus.OK:
                self._connection.cancel_safe()
                self._rest()

    def _send(self, sql: str) -> None:
        try:
            self._pg.send_query(sql.encode())
            while self._pg.flush():
                self._wait()
        except _driver().Error as error:
            raise self._refused(error) from None

    def _wait(self, seconds: float | None = None) -> bool:
        """Take what the server sent, and wait for it; whether there was something."""
        if not self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            return False
        try:
            self._pg.consume_input()
        except _driver().Error as error:
            raise self._refused(error) from None
        return True

    def _result(self) -> PGresult | None:
        while self._pg.is_busy():
            self._wait()
        return self._pg.get_result()

    def _rest(self) -> None:
        """Leave out what a statement still gives, so that the next can begin."""
        while (result := self._result()) is not None:
            while result.status == _driver().pq.ExecStatus.COPY_OUT:
                status, _ = self._pg.get_copy_data(1)
                if status < 0:
                    break
                if status == 0:
                    self._wait()

    def _require(self, result: PGresult | None, status: str) -> None:
        """Refuse any other answer than the one that is expected."""
        if result is None or result.status != _driver().pq.ExecStatus[status]:
            error = self._answered(result)
            if not isinstance(error, LostConnection):
                self._rest()
            raise error

    def _answered(self, result: PGresult | None) -> HeadraceError:
        if result is None:
            return refused(self._endpoint, "", "the server gave no answer")
        field = _driver().pq.DiagnosticField
        state, message, detail = (
            (result.error_field(part) or b"").decode(errors="replace")
            for part in (field.SQLSTATE, field.MESSAGE_PRIMARY, field.MESSAGE_DETAIL)
        )
        return refused(self._endpoint, state, message or self._clean(Exception(result.error_message.decode())), detail)

    def _refused(self, error: Exception) -> HeadraceError:
        facts: Any = getattr(error, "diag", None)
        message = getattr(facts, "message_primary", None) or self._clean(error)
        return refused(
            self._endpoint,
            getattr(error, "sqlstate", None) or "",
            message,
            getattr(facts, "message_detail", None) or "",
        )


class ReplicationConnection(Connection):
    """A replication session: SQL, and then the stream of one slot until it is closed.

    While it streams, a thread of its own answers the server, so a reader may take its time: it takes what comes, up to
    a megabyte, and says every second how far that is. A copy that the session made of a slot is confirmed as far as it
    was received: it ends with the session, so that loses nothing. Another slot is never moved. The server's fast
    shutdown waits for neither.

    Args:
        settings: the source's options.
    """

    _replication = True

    def __init__(self, settings: PostgresSettings) -> None:
        super().__init__(settings)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._copies: set[str] = set()
        self._confirms = False
        self._over = False
        self._kept: list[bytes] = []
        self._kept_size = 0
        self._received = 0
        self._asked = 0.0

    def copy_slot(self, slot: str, name: str) -> int:
        """Copy a slot to a temporary one of this session.

        Args:
            slot: the slot.
            name: the copy's name.

        Returns:
            The LSN before which the copy has no commits.

        Raises:
            PostgresError: the server refused it; `sqlstate` says why.
        """
        sql = "SELECT lsn FROM pg_copy_logical_replication_slot(%s, %s, true)"
        confirmed = lsn.of_server(str(self.value(sql, (slot, name))))
        self._copies.add(name)
        return confirmed

    def start(self, slot: str, boundary: int, publication: str, *, messages: bool = False) -> None:
        """Begin the stream of a slot: transactions whose commit record begins at the boundary or later.

        The server takes any boundary without a word; it must not be before what the slot confirmed, nor after the end
        of the log.

        Args:
            slot: a copy, or a slot that nobody else streams.
            boundary: where to begin.
            publication: its name.
            messages: whether logical messages come, too.
        """
        timeout = self.value("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'") / 1000
        options = {"proto_version": "1", "publication_names": identifier(publication)}
        if messages:
            options["messages"] = "true"
        listed = ", ".join(f"{name} {literal(value)}" for name, value in options.items())
        self._send(f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {lsn.to_server(boundary)} ({listed})")
        self._require(self._result(), "COPY_BOTH")
        self._confirms = slot in self._copies
        period = min(_STATUS_SECONDS, timeout / 3) if timeout else _STATUS_SECONDS
        threading.Thread(target=self._stay, args=(period,), daemon=True, name=f"headrace {slot}").start()

    def receive(self, timeout_s: float) -> list[bytes]:
        """The next payloads of the stream, each XLogData or a keepalive, as many as are there.

        While nothing comes it asks the server for a keepalive, whose position says how far everything was sent.

        Args:
            timeout_s: how long to wait for the first one, in seconds.

        Returns:
            The payloads; none where the time passed.

        Raises:
            LostConnection: the connection broke, or the server ended the session.
            PostgresError: decoding failed.
        """
        until = time.monotonic() + timeout_s
        while True:
            with self._lock:
                payloads, self._kept, self._kept_size = self._kept or self._taken(), [], 0
            if payloads:
                return payloads
            now = time.monotonic()
            if now >= until:
                return []
            if not self._over:
                if now - self._asked >= _ASK_SECONDS:
                    self._asked = now
                    self._tell(reply=True)
                self._poll.poll(min(until - now, _ASK_SECONDS) * 1000)

    def confirm(self, position: int, *, reply: bool = False) -> None:
        """Remember that everything before an LSN was received; the server gets to know in time, and only a copy moves.

        Args:
            position: the LSN.
            reply: say so at once, and ask for a keepalive.
        """
        self._received = max(self._received, position)
        if reply:
            self._tell(reply=True)

    def close(self) -> None:
        """Close the session; a copy that it made is gone with it."""
        self._closing.set()
        with self._lock:
            super().close()

    def _taken(self) -> list[bytes]:
        if self._over:
            raise self._end()
        payloads: list[bytes] = []
        take, size, answer = self._pg.get_copy_data, 0, False
        while size < _MANY_BYTES:
            status, data = take(1)
            if status == 0:
                try:
                    self._pg.consume_input()
                except _driver().Error as error:
                    raise self._refused(error) from None
                status, data = take(1)
                if status == 0:
                    break
            if status < 0:
                self._over = True
                break
            payloads.append(bytes(data))
            size += status
            if status == _KEEPALIVE_BYTES and data[0] == _KEEPALIVE:
                answer = answer or data[17] == 1
        if payloads:
            # Of XLogData where the change stands, of a keepalive how far everything was sent.
            self._received = max(self._received, int.from_bytes(payloads[-1][1:9], "big"))
        if answer:
            self._write(reply=False)
        return payloads

    def _end(self) -> HeadraceError:
        """Why the stream is over: an error, or the server shuts down."""
        result = self._result()
        if result is not None and result.status == _driver().pq.ExecStatus.FATAL_ERROR:
            return self._answered(result)
        return LostConnection(
            f"The server ended the stream of {self._endpoint}.",
            remedy="It is probably being shut down; the run goes on where it stopped.",
        )

    def _stay(self, period: float) -> None:
        while not self._closing.wait(period):
            try:
                with self._lock:
                    self._keep()
                self._tell(reply=False)
            except LostConnection:
                # Whoever receives finds it out, too.
                return

    def _keep(self) -> None:
        """Take what was sent while nobody receives. A server that shuts down waits until all of it is answered."""
        if self._over or self._closing.is_set() or self._kept_size >= _MANY_BYTES:
            return
        for payload in self._taken():
            if self._kept and payload[0] == self._kept[-1][0] == _KEEPALIVE:
                self._kept.pop()
            self._kept.append(payload)
            self._kept_size += len(payload)

    def _tell(self, *, reply: bool) -> None:
        with self._lock:
            if not self._closing.is_set():
                self._write(reply=reply)

    def _write(self, *, reply: bool) -> None:
        written = self._received
        flushed = written if self._confirms else 0
        now = time.time_ns() // 1000 - _EPOCH_MICROSECONDS
        numbers = b"".join(number.to_bytes(8, "big") for number in (written, flushed, flushed, now))
        try:
            self._pg.put_copy_data(_STATUS + numbers + (b"\1" if reply else b"\0"))
            self._pg.flush()
        except _driver().Error as error:
            raise self._refused(error) from None


def connect(settings: PostgresSettings) -> Connection:
    """Open a session for SQL.

    Raises:
        OptionError: the driver is not installed.
        ConnectError: the server is not there (`LostConnection`) or refuses the login.
    """
    return Connection(settings)


def connect_replication(settings: PostgresSettings) -> ReplicationConnection:
    """Open a replication session of the database.

    Raises:
        OptionError: the driver is not installed.
        ConnectError: the server is not there (`LostConnection`) or refuses the session.
    """
    return ReplicationConnection(settings)


def _parameters(settings: PostgresSettings, port: str, password: str) -> dict[str, Any]:
    given = {
        "host": settings.hostname,
        "port": port,
        "dbname": settings.database,
        "user": settings.user,
        "password": password,
        "sslmode": settings.sslmode,
        "sslrootcert": settings.sslrootcert,
        "sslcert": settings.sslcert,
        "sslkey": settings.sslkey,
        "application_name": f"headrace/{settings.slot}"[:_NAME_BYTES],
        "client_encoding": "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
        # A server that vanished without a word is found out within a minute.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "connect_timeout": -(-settings.connect_timeout_ms // 1000),
    }
    return {name: value for name, value in given.items() if value}


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise OptionError(
            "The PostgreSQL driver psycopg is not installed.", remedy="Run: pip install 'headrace[postgresql]'."
        ) from error
    return psycopg
