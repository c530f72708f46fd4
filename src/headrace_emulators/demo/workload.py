"""The demo's database and those who change it, in a process of their own beside the Spark driver.

Its own process, because the emulator is Python like the driver, and the two would share one interpreter lock. The
parent writes words to the child's stdin (`change`, `stop`), the child answers with one JSON object per line. When the
parent is gone, so is the child's stdin, and it ends.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace_emulators.demo.real_server import RealServer
    from headrace_emulators.engine.traffic import Workload as Traffic
    from headrace_emulators.mysql.shop import MysqlShop
    from headrace_emulators.oracle.shop import OracleShop
    from headrace_emulators.postgresql.shop import PostgresShop

_END_SECONDS = 10.0


class WorkloadError(HeadraceError):
    """The demo's database could not be made or changed."""


class Workload:
    """The parent's side; use it in a `with` block, at whose end the child ends.

    Args:
        folder: the server's folder.
        database: `flights` or `shop`: both the database's name and what is done with it.
        seed: of the changes.
        rate: transactions per second.
        source: which kind of database it is.
        server: the real server that has it; None where it is emulated.
    """

    def __init__(
        self,
        folder: Path,
        database: str,
        seed: int,
        rate: float,
        source: str = "sqlserver",
        server: RealServer | None = None,
    ) -> None:
        port = "" if server is None else str(server.port)
        self._arguments = [str(folder), database, str(seed), str(rate), source, port]
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._seen: dict[str, Any] = {}

    def __enter__(self) -> Workload:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace_emulators.demo.workload", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Ctrl-C in the terminal is for the parent, which ends the child in order.
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def ready(self) -> bool:
        """Whether the database exists with its history; raises `WorkloadError` when it could not be made."""
        self.check()
        return "file" in self._seen

    @property
    def captured(self) -> bool:
        """Whether changes have ended and the capture job has seen all of them."""
        self.check()
        return "transactions" in self._seen

    @property
    def file(self) -> Path:
        return Path(self._seen["file"])

    @property
    def transactions(self) -> int:
        """How many transactions were committed."""
        return int(self._seen["transactions"])

    def change(self) -> None:
        self._say("change")

    def stop(self) -> None:
        """End the changes; `captured` is true a moment later."""
        self._say("stop")

    def check(self) -> None:
        """Take the child's answers in.

        Raises:
            WorkloadError: it has ended by itself.
        """
        while not self._answers.empty():
            self._seen.update(self._answers.get())
        if "error" in self._seen:
            raise WorkloadError(f"The demo's database failed: {self._seen['error']}", remedy="Try --debug.")

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # Its answers have the reason.
            self.check()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        if "transactions" not in self._seen and self._process.wait() != 0:
            lines = self._process.stderr.read().strip().splitlines()
            self._answers.put({"error": lines[-1] if lines else f"it ended with code {self._process.returncode}"})


def _answer(**values: object) -> None:
    print(json.dumps(values), flush=True)


def _made(source: str, folder: Path, name: str, seed: int) -> Traffic[Any]:
    if source == "db2":
        from headrace_emulators import db2
        from headrace_emulators.db2.shop import Shop as Db2Shop

        return Db2Shop.create(db2.EmulatedDb2(folder), seed, name=name)
    from headrace_emulators.sqlserver import EmulatedServer
    from headrace_emulators.sqlserver.flights import Flights
    from headrace_emulators.sqlserver.shop import Shop

    kinds: dict[str, type[Flights] | type[Shop]] = {"flights": Flights, "shop": Shop}
    return kinds[name].create(EmulatedServer(folder), seed, name=name)


def _writes_log(source: str, folder: Path, port: str, seed: int, rate: float, stop: threading.Event) -> None:
    """Changes of a database that writes its log by itself, so that nothing has to capture them."""
    with ExitStack() as running:
        shop: OracleShop | PostgresShop | MysqlShop
        if source == "mariadb":
            from headrace_emulators.mysql.server import MySqlServer
            from headrace_emulators.mysql.shop import MysqlShop

            shop = MysqlShop.create(running.enter_context(MySqlServer(folder, port=port)), seed)
        elif source == "oracle":
            from headrace_emulators.oracle.shop import OracleShop

            shop = OracleShop.create(folder, seed)
        else:
            from headrace_emulators.postgresql.server import private_server
            from headrace_emulators.postgresql.shop import PostgresShop

            shop = PostgresShop.create(running.enter_context(private_server(folder)), seed)
        rows = folder / "rows.sqlite"
        _answer(file=str(rows))
        if sys.stdin.readline() != "change\n":
            return
        threading.Thread(target=_listen_for_end, args=(stop,), daemon=True).start()
        shop.replay(stop, rate=rate)
        shop.publish(rows)
        _answer(transactions=shop.transactions)
        sys.stdin.read()


def _listen_for_end(stop: threading.Event) -> None:
    # `stop`, or the end of the parent.
    sys.stdin.readline()
    stop.set()


def main(arguments: list[str]) -> None:
    """The child's side: make the database, then change and capture it as the parent commands."""
    folder, name, seed, rate, source, port = arguments
    stop = threading.Event()
    if source in ("oracle", "postgresql", "mariadb"):
        _writes_log(source, Path(folder), port, int(seed), float(rate), stop)
        return
    traffic = _made(source, Path(folder), name, int(seed))
    with traffic.database.capturing():
        _answer(file=str(traffic.database.path))
        if sys.stdin.readline() != "change\n":
            return
        listener = threading.Thread(target=_listen_for_end, args=(stop,), daemon=True)
        listener.start()
        traffic.replay(stop, rate=float(rate))
        listener.join()
        # The job's thread may be in the middle of a scan; this one waits for it and takes the rest.
        while traffic.database.capture():
            pass
        _answer(transactions=traffic.transactions)
        # Snapshots of tables without a key wait for a running capture job, so it runs until the parent is done.
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
