"""Jars are asked for once and then taken from disk; a failed download is one sentence with a remedy."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.spark import jars


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the resolver was asked for; it answers with a new file for each coordinate."""
    questions: list[str] = []

    def resolve(coordinates: str) -> tuple[Path, ...]:
        questions.append(coordinates)
        answer = tuple(tmp_path / f"{name.replace(':', '_')}.jar" for name in coordinates.split(","))
        for jar in answer:
            jar.touch()
        return answer

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_resolve", resolve)
    return questions


def test_a_set_is_asked_for_once_in_whatever_order_it_is_named(asked: list[str]) -> None:
    first = jars.maven_jars(["a:b:1", "c:d:2"])
    assert jars.maven_jars(["c:d:2", "a:b:1", "a:b:1"]) == first
    assert asked == ["a:b:1,c:d:2"]


def test_a_jar_that_was_deleted_is_asked_for_again(asked: list[str]) -> None:
    (jar,) = jars.maven_jars(["a:b:1"])
    jar.unlink()
    assert jars.maven_jars(["a:b:1"])[0].is_file()
    assert asked == ["a:b:1"] * 2


def test_a_damaged_listing_is_asked_for_again(asked: list[str], tmp_path: Path) -> None:
    jars.maven_jars(["a:b:1"])
    (listing,) = (tmp_path / "cache").rglob("*.json")
    listing.write_text("{")
    assert jars.maven_jars(["a:b:1"])
    assert asked == ["a:b:1"] * 2


def test_nothing_asked_is_nothing_done(asked: list[str]) -> None:
    assert jars.maven_jars([]) == ()
    assert asked == []


def test_a_failed_download_names_the_artifact_and_a_remedy() -> None:
    printed = "\t\t:: UNRESOLVED DEPENDENCIES ::\n\t\t:: org.foo#bar_2.13;4.1.0: not found\n"
    error = jars._unresolved("org.foo:bar_2.13:4.1.0,a:b:1", printed)
    assert "Can't download the Java libraries org.foo:bar_2.13:4.1.0" in error.message
    assert "spark.jars.ivySettings" in error.remedy


def test_a_user_without_a_home_keeps_downloads_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(number: int) -> SimpleNamespace:
        raise KeyError(number)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    for known in (lambda _: SimpleNamespace(pw_dir=str(tmp_path)), lambda _: SimpleNamespace(pw_dir="/none"), unknown):
        monkeypatch.setattr("pwd.getpwuid", known)
        found.append(jars.ivy_folder())
    own = tmp_path / "cache" / "headrace" / "ivy"
    assert found == [None, own, own]
