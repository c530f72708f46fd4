"""`python -m headrace_emulators.sqlserver DATABASE_FILE script.sql ...`: run T-SQL scripts in an emulated database."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace_emulators.engine import database_files as files
from headrace_emulators.sqlserver.errors import Error
from headrace_emulators.sqlserver.server import EmulatedDatabase, EmulatedServer

_FAILED = 2
_ABOUT = """\
Run T-SQL scripts, one after another, in a database of an emulated SQL Server. The server is the folder of
DATABASE_FILE, and each database is a file in it, so that a reader connects with hostname=FOLDER, database=NAME and
driver=emulator.
A script is what sqlcmd takes: batches that GO ends, with several statements in a batch. The first error ends the run
with exit code 2; what ran before it stays."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code: 0, or 2 when a script or the command line is wrong."""
    given = _parser().parse_intermixed_args(arguments)
    try:
        database = _database(Path(given.database_file), given.database)
    except (Error, OSError, ValueError) as error:
        return _failed(str(error))
    with database:
        try:
            if given.agent:
                EmulatedServer(database.path.parent).set_agent(running=given.agent == "running")
            adopted = database.adopt_instances() if given.capture else []
            for name in given.scripts:
                code = _script(database, name, quiet=given.quiet)
                if code:
                    return code
            captured = database.capture() if given.capture else 0
            if given.idle:
                database.mark_idle()
        except Error as error:
            return _failed(str(error))
        if not given.quiet:
            print(f"database {database.name}: hostname={database.path.parent} database={database.name} driver=emulator")
            if given.capture:
                print(f"captured {captured} transactions" + (f"; now logged: {', '.join(adopted)}" if adopted else ""))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace_emulators.sqlserver", description=_ABOUT)
    parser.add_argument(
        "database_file",
        metavar="DATABASE_FILE",
        help="the file of the database, made unless it exists; without a suffix it gets .sqlite; with --database it"
        " may be a folder",
    )
    parser.add_argument("scripts", metavar="script.sql", nargs="*", help="in UTF-8 or UTF-16; they run in this order")
    parser.add_argument("--database", metavar="NAME", help="the database's name, when it is not the file's")
    parser.add_argument(
        "--capture",
        action="store_true",
        help="run the capture job once after the last script; tables whose capture instances an earlier run wrote by"
        " hand are logged from the first script on",
    )
    parser.add_argument("--idle", action="store_true", help="at the end write the dummy row of an idle capture job")
    parser.add_argument("--agent", choices=("running", "stopped"), help="start or stop SQL Server Agent before")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return parser


def _database(path: Path, name: str | None) -> EmulatedDatabase:
    if path.is_dir():
        if not name:
            raise ValueError(f"{path} is a folder: give --database NAME, or a file in it.")
        path = files.find(path, name) or path / f"{name}{files.SUFFIX}"
    elif not path.suffix:
        path = path.with_name(path.name + files.SUFFIX)
    server = EmulatedServer(path.parent.resolve())
    path = server.directory / path.name
    if name is None and (path.suffix != files.SUFFIX or files.name_of(path) != path.stem):
        name = files.name_of(path)
    return server.open_file(path.name, name)


def _script(database: EmulatedDatabase, name: str, *, quiet: bool) -> int:
    try:
        raw = Path(name).read_bytes()
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return _failed(f"{name}: {error}")
    try:
        database.script(text)
    except Error as error:
        number = f"error {error.number}: " if error.number else ""
        shown = " ".join(error.statement.split())
        return _failed(
            f"{name}, line {error.line}: {number}{error}"
            + (f"\n  in: {shown if len(shown) <= 300 else shown[:300] + '...'}" if shown else "")
        )
    finally:
        messages = database.session.batch.messages
        if not quiet:
            for message in messages:
                print(message)
        messages.clear()
    return 0


def _failed(message: str) -> int:
    print(message, file=sys.stderr)
    return _FAILED


if __name__ == "__main__":
    sys.exit(main())
