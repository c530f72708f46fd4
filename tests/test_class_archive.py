"""Sessions on this machine use an archive of Spark's classes that suits their Java and their PySpark, or none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.spark import archive_classes, class_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, whose text is its build, and an environment without an archive."""
    program = tmp_path / "java"
    program.write_text("17")
    monkeypatch.setattr(class_archive, "find_java", lambda: program)
    monkeypatch.setattr(class_archive, "build", Path.read_text)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "environment").mkdir()
    return program


def test_without_an_archive_java_gets_no_option(java: Path) -> None:
    assert class_archive.java_options() == []


def test_an_archive_is_used_until_java_changes(java: Path) -> None:
    archive = class_archive.class_archive()
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_options()
    java.write_text("17.0.1")
    assert class_archive.java_options() == []


def test_it_is_in_the_virtual_environment_or_else_in_the_users_cache(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_archive.class_archive().is_relative_to(tmp_path / "environment")
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert class_archive.class_archive().is_relative_to(tmp_path / "cache")


def test_a_java_that_writes_no_archive_is_reported_and_leaves_no_file(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    archive_classes.main()
    assert "keeps no archive" in capsys.readouterr().out
    assert not list(tmp_path.rglob("*classes-*"))


@pytest.mark.jvm
def test_a_session_maps_the_archive_that_make_setup_made(spark: SparkSession) -> None:
    archive = class_archive.class_archive()
    jvm = spark._jvm
    if not archive.is_file() or jvm is None or not Path("/proc/self").is_dir():
        pytest.skip("no archive here: python -m headrace.spark.archive_classes")
    pid = jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()
