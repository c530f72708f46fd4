"""Rule: a command that is shown can be typed where the user stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli.failure import program


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment's programs beside the user, not on his path."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "headrace"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    return programs


def test_a_program_of_an_environment_that_is_not_active_is_called_by_its_path(environment: Path) -> None:
    assert program("headrace") == ".venv/bin/headrace"


def test_a_program_of_an_active_environment_is_called_by_its_name(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(environment))
    assert program("headrace") == "headrace"


def test_from_elsewhere_the_whole_path_is_shown(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program("python") == str(environment / "python")
