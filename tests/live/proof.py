"""What holds on real servers: starts those that it can, runs their live tests, and writes `docs/proof.md`.

    make proof                                  # every server that this machine can start or that is named
    make proof ARGS="--only postgresql mysql"   # some of them; the others keep what the page says of them

Where Docker is, a server is its official image (`tests/live/compose.yaml`), and a driver that is missing is installed.
PostgreSQL, MariaDB and MySQL are the machine's own elsewhere. A server that the environment names
(`HEADRACE_POSTGRESQL_URL` and so on, docs/live.md) is used as it is, and nothing is started.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.live import db2, oracle, server
from tests.live.named_servers import URLS, Address, NamedMySql, NamedPostgres

from headrace import registry
from headrace_emulators.mysql.server import MARIADB, MYSQL, MySqlServer
from headrace_emulators.mysql.server import missing as missing_mysql
from headrace_emulators.postgresql.server import PostgresServer
from headrace_emulators.postgresql.server import missing as missing_postgres

ROOT = Path(__file__).parents[2]
COMPOSE = Path(__file__).parent / "compose.yaml"
PAGE = ROOT / "docs" / "proof.md"
RESULTS = ROOT / "docs" / "proof.json"
NEVER = "never"
_READY_SECONDS = 900
_ORACLE_SETUP = """
WHENEVER SQLERROR EXIT FAILURE
ALTER DATABASE ADD SUPPLEMENTAL LOG DATA;
CREATE USER C##HEADRACE IDENTIFIED BY "Choose_0ne" CONTAINER=ALL;
GRANT CREATE SESSION, SET CONTAINER, LOGMINING, SELECT_CATALOG_ROLE, EXECUTE_CATALOG_ROLE, FLASHBACK ANY TABLE,
  SELECT ANY TABLE, SELECT ANY TRANSACTION, SELECT ANY DICTIONARY, CREATE TABLE, UNLIMITED TABLESPACE
  TO C##HEADRACE CONTAINER=ALL;
GRANT EXECUTE ON DBMS_FLASHBACK TO C##HEADRACE CONTAINER=ALL;
EXIT
"""

_DB2_SETUP = """
db2 connect to testdb
db2 "values asncdc.asncdcservices('start', 'asncdc')"
"""

_HEAD = """# What was seen on real servers

Written by `make proof`; do not edit.

`make proof` starts the official image of each server where Docker is, runs the live tests on it, and writes this page.
Without Docker it takes the PostgreSQL, MariaDB and MySQL that are installed. A server of your own is used as it is when
the environment names it ([how](live.md)). `make test` runs many more tests on the machine's PostgreSQL, MariaDB and
MySQL, and on emulators.

| server | its version | where it ran | passed | failed | gaps | on |
|---|---|---|---|---|---|---|
"""


class NotHere(Exception):
    """The server can't be started here; the text says why, as the end of a sentence."""


@dataclass(frozen=True)
class Seen:
    """What came out on one server.

    Args:
        version: what the server calls itself; empty where it did not run.
        where: whether it was an image, the machine's own or a named one; where it did not run, why.
        passed: how many tests.
        failed: how many did not.
        gaps: how many did not run, or are known not to pass, for a declared reason.
        on: the day; `never` where it did not run.
    """

    version: str
    where: str
    passed: int = 0
    failed: int = 0
    gaps: int = 0
    on: str = NEVER


class Subject(ABC):
    """A server, and its live tests.

    Args:
        name: its service in the compose file, and its word on the command line.
        title: for people.
        url: the variable that names one.
        tests: what pytest runs.
        prepared_by: what a new container runs before the tests, and what that reads.
        extra: what of Headrace brings its driver, where the lock file does not.
    """

    name: str
    title: str
    url: str
    tests: Sequence[str]
    prepared_by: tuple[Sequence[str], str] | None = None
    extra: str = ""

    @abstractmethod
    def in_container(self) -> str:
        """The address of the one that the compose file starts."""

    @abstractmethod
    def version(self) -> str:
        """What the server that the environment names calls itself."""

    @contextmanager
    def own(self) -> Iterator[str]:
        """The machine's own, for a block; its address.

        Raises:
            NotHere: the machine has none.
        """
        raise NotHere("no Docker on that machine")
        yield ""


class Postgres(Subject):
    """PostgreSQL, by the capture contract."""

    name, title, url = "postgresql", "PostgreSQL", URLS["postgresql"]
    tests = ("tests/contracts/test_capture.py", "-k", "TestPostgres")

    def in_container(self) -> str:
        return "postgresql://cdc:cdc@127.0.0.1:55432"

    def version(self) -> str:
        address = Address.of("postgresql")
        assert address is not None
        return NamedPostgres(address).version

    @contextmanager
    def own(self) -> Iterator[str]:
        if lacking := missing_postgres():
            raise NotHere(f"not installed. {lacking}")
        with _short_folder() as folder, PostgresServer(folder) as running:
            yield f"postgresql://{running.login['user']}@{running.host}:{running.port}"


class MySqlLike(Subject):
    """MySQL or MariaDB, by the capture contract."""

    def __init__(self, kind: str, title: str, port: int) -> None:
        self.name, self.title, self.url = kind, title, URLS[kind]
        self.tests = ("tests/sources/mysql/test_capture.py", "-k", "TestMariadb" if kind == MARIADB else "TestMysql")
        self._port = port

    def in_container(self) -> str:
        return f"{self.name}://root:cdc@127.0.0.1:{self._port}"

    def version(self) -> str:
        address = Address.of(self.name)
        assert address is not None
        return NamedMySql(self.name, address).version

    @contextmanager
    def own(self) -> Iterator[str]:
        if lacking := missing_mysql(self.name):
            raise NotHere(f"not installed. {lacking}")
        with _short_folder() as folder, MySqlServer(folder, self.name) as running:
            yield f"{self.name}://{running.login['user']}:{running.login['password']}@{running.host}:{running.port}"


class SqlServer(Subject):
    """SQL Server, by the scenarios of its emulator."""

    name, title, url = "sqlserver", "SQL Server", server.URL
    tests = ("-m", "live", "tests/live/test_live_server.py", "tests/live/test_live_locks.py", "tests/sources/sqlserver")

    def in_container(self) -> str:
        if os.environ.get("ACCEPT_EULA") != "Y" or not os.environ.get("MSSQL_SA_PASSWORD"):
            raise NotHere("its licence was not accepted: set ACCEPT_EULA=Y and MSSQL_SA_PASSWORD")
        return f"sqlserver://sa:{_quoted(os.environ['MSSQL_SA_PASSWORD'])}@127.0.0.1:1433?trust_server_certificate=yes"

    def version(self) -> str:
        settings = server.settings_from()
        assert settings is not None
        connection = server.connected({**settings, "database": "master"})
        with connection.cursor() as cursor:
            cursor.execute("SELECT CAST(SERVERPROPERTY('ProductVersion') AS varchar(50))")
            [version] = cursor.fetchone()
        connection.close()
        return str(version)


class Oracle(Subject):
    """Oracle, by one scenario."""

    name, title, url = "oracle", "Oracle", oracle.URL
    tests = ("-m", "live", "tests/live/test_live_oracle.py")
    prepared_by = (("sqlplus", "-S", "/", "as", "sysdba"), _ORACLE_SETUP)
    extra = "oracle"

    def in_container(self) -> str:
        return "oracle://C%23%23HEADRACE:Choose_0ne@127.0.0.1:1521/FREE?pdb=FREEPDB1"

    def version(self) -> str:
        settings = oracle.settings_from(os.environ[self.url])
        connection = registry.find("driver", "oracledb")(settings)
        version = str(connection.version)
        connection.close()
        return version


class Db2(Subject):
    """Db2, by the capture contract."""

    name, title, url = "db2", "Db2", db2.URL
    tests = ("-m", "live", "tests/contracts/test_capture.py", "tests/live/test_live_db2.py")
    prepared_by = (("su", "-", "db2inst1"), _DB2_SETUP)
    extra = "db2"

    def in_container(self) -> str:
        if os.environ.get("LICENSE") != "accept":
            raise NotHere("its licence was not accepted: set LICENSE=accept")
        return "db2://db2inst1:Choose_0ne@127.0.0.1:50000/testdb"

    def version(self) -> str:
        settings = db2.settings_from()
        assert settings is not None
        connection = registry.find("driver", settings["driver"])(settings)
        with connection.cursor() as cursor:
            cursor.execute("SELECT service_level FROM sysibmadm.env_inst_info")
            [version] = cursor.fetchone()
        connection.close()
        return str(version)


SUBJECTS: tuple[Subject, ...] = (
    SqlServer(),
    Db2(),
    Oracle(),
    Postgres(),
    MySqlLike(MYSQL, "MySQL", 53306),
    MySqlLike(MARIADB, "MariaDB", 53307),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and write the page; 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[subject.name for subject in SUBJECTS], default=[])
    only = parser.parse_args(arguments).only
    seen = read()
    for subject in SUBJECTS:
        if only and subject.name not in only:
            continue
        now = tried(subject)
        # What was seen on another day stays where it can't be repeated.
        if now.on != NEVER or seen.get(subject.name, now).on == NEVER:
            seen[subject.name] = now
        print(f"{subject.title}: {_sentence(now)}", flush=True)
        # Whatever happens with the next one, this was seen.
        results = {name: asdict(one) for name, one in seen.items()}
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        PAGE.write_text(page(seen), encoding="utf-8")
    return int(any(one.failed for one in seen.values()))


def tried(subject: Subject) -> Seen:
    """What comes out on a server now."""
    try:
        with _running(subject) as where:
            return _tests(subject, where)
    except NotHere as why:
        return Seen("", f"not run: {why}")


@contextmanager
def _running(subject: Subject) -> Iterator[str]:
    """The server, named in the environment; where it is."""
    if os.environ.get(subject.url):
        _install(subject)
        yield "named by its address"
        return
    if _has_docker():
        address = subject.in_container()
        _install(subject)
        _compose("up", "--build", "--detach", "--wait", "--wait-timeout", str(_READY_SECONDS), subject.name)
        try:
            if subject.prepared_by is not None:
                words, told = subject.prepared_by
                _compose("exec", "-T", subject.name, *words, told=told)
            with _named(subject, address):
                yield "its official image"
        finally:
            _compose("down", "--volumes")
        return
    with subject.own() as address, _named(subject, address):
        yield "this machine's packages"


@contextmanager
def _named(subject: Subject, address: str) -> Iterator[None]:
    os.environ[subject.url] = address
    try:
        yield
    finally:
        del os.environ[subject.url]


def _tests(subject: Subject, where: str) -> Seen:
    version = subject.version()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *subject.tests], cwd=ROOT, check=False
        )
        if not report.is_file():
            sys.exit(f"pytest ended with {done.returncode} and wrote no report on {subject.title}.")
        cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    gaps = sum(case.find("skipped") is not None for case in cases)
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return Seen(version, where, len(cases) - failed - gaps, failed, gaps, today)


def read() -> dict[str, Seen]:
    """What the page has so far, by server."""
    if not RESULTS.is_file():
        return {}
    return {name: Seen(**values) for name, values in json.loads(RESULTS.read_text(encoding="utf-8")).items()}


def page(seen: dict[str, Seen]) -> str:
    """The page's text."""
    lines = []
    for subject in SUBJECTS:
        one = seen.get(subject.name, Seen("", "not run"))
        counts = ["", "", "", NEVER] if one.on == NEVER else [one.passed, one.failed, one.gaps, one.on]
        lines.append("| " + " | ".join(map(str, [subject.title, one.version, one.where, *counts])) + " |\n")
    return _HEAD + "".join(lines)


def _sentence(one: Seen) -> str:
    if one.on == NEVER:
        return one.where
    return f"{one.version}, {one.where}: {one.passed} passed, {one.failed} failed, {one.gaps} gaps"


def _install(subject: Subject) -> None:
    """The driver of a server, which the lock file leaves out."""
    if not subject.extra:
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    packages = project["optional-dependencies"][subject.extra]
    if subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=False).returncode:
        raise NotHere(f"its driver can't be installed ({', '.join(packages)})")


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def _compose(*words: str, told: str | None = None) -> None:
    command = ["docker", "compose", "--file", str(COMPOSE), *words]
    # The file wants the words of licences also where another server is started.
    environment = {"ACCEPT_EULA": "N", "MSSQL_SA_PASSWORD": "-", "LICENSE": "view", **os.environ}
    done = subprocess.run(command, input=told, text=True, env=environment, check=False)
    if done.returncode:
        raise NotHere(f"`docker compose {' '.join(words)}` ended with {done.returncode}")


@contextmanager
def _short_folder() -> Iterator[Path]:
    # A socket's path is limited.
    with tempfile.TemporaryDirectory(prefix="hr-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


if __name__ == "__main__":
    sys.exit(main())
