"""Rule: a password may come from a command, which is run where a connection is made, and shows nothing of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from headrace import passwords
from headrace.errors import HeadraceError, OptionError
from headrace.passwords import NoPassword, PasswordSettings, current_password, password_of
from headrace.settings import option


class Login(PasswordSettings):
    """As that of a source."""

    password: str = option("The password.", default="")


@pytest.fixture(autouse=True)
def nothing_printed_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_PRINTED", passwords._Printed())


def command(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


def counting(file: Path) -> str:
    """A command that prints how often it ran."""
    return command(f"f = open({str(file)!r}, 'a+'); f.write('x'); f.seek(0); print('token', len(f.read()))")


@pytest.mark.parametrize(
    ("given", "password"),
    [
        ({}, ""),
        ({"password": "secret"}, "secret"),
        ({"password_command": command("print('secret')")}, "secret"),
        ({"password_command": command("print(' of spaces  ')")}, " of spaces  "),
        ({"password_command": command("import sys; print('token'); print('a warning', file=sys.stderr)")}, "token"),
    ],
)
def test_the_password_is_what_was_given_or_what_the_command_prints(given: dict[str, str], password: str) -> None:
    assert password_of(Login.parse(given, owner="source")) == password


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({"password": "a", "password_command": "b"}, OptionError, "Both 'password' and 'password_command' are given."),
        ({"password_command": "no-such-program --token"}, OptionError, "can't be run: No such file or directory."),
        ({"password_command": "echo 'a"}, OptionError, "has a quote without its end."),
        ({"password_command": "''"}, OptionError, "can't be run"),
        ({"password_command": command("print('hidden'); raise SystemExit(3)")}, NoPassword, "ended with 3."),
        ({"password_command": command("raise Exception('hidden')")}, NoPassword, "ended with 1."),
        ({"password_command": command("print()")}, NoPassword, "printed nothing."),
    ],
)
def test_a_command_that_gives_no_password_is_an_error_that_shows_nothing_of_it(
    given: dict[str, str], kind: type[HeadraceError], sentence: str
) -> None:
    with pytest.raises(kind) as caught:
        password_of(Login.parse(given, owner="source"))
    assert sentence in caught.value.message
    assert caught.value.remedy
    assert "hidden" not in str(caught.value)


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(NoPassword, match="takes longer than"):
        current_password(None, command("import signal; signal.pause()"))


def test_what_a_command_printed_is_used_for_a_while_and_then_it_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = counting(tmp_path / "runs")
    assert [current_password(None, counted) for _ in range(3)] == ["token 1"] * 3
    monkeypatch.setattr(passwords, "_KEPT_SECONDS", -1)
    assert [current_password(None, counted) for _ in range(2)] == ["token 2", "token 3"]


def test_neither_command_nor_password_is_shown() -> None:
    settings = Login.parse({"password_command": "vault read hidden"}, owner="source")
    assert "hidden" not in repr(settings)
