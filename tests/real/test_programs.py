"""What the live tests do on a machine without the producers, and how they watch the processes that they start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.errors import ConnectError
from headrace_emulators.engine.programs import Server, program


def test_a_missing_program_is_an_error_that_names_its_package() -> None:
    with pytest.raises(ConnectError, match="program no-such-daemon is needed") as refused:
        program("no-such-daemon", "some-package")
    assert "apt-get install some-package" in str(refused.value)


def test_a_server_that_ends_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    server = Server("A server", tmp_path / "log")
    server.start([sys.executable, "-c", "print('no room left')"], folder=tmp_path)
    with pytest.raises(ConnectError, match=r"(?s)A server ended before it answered.*no room left"):
        server.wait_until(lambda: False, "it answered")


def test_a_condition_that_does_not_come_is_an_error_and_the_server_can_be_stopped(tmp_path: Path) -> None:
    server = Server("A server", tmp_path / "log")
    server.start([sys.executable, "-c", "import signal; signal.pause()"], folder=tmp_path)
    with pytest.raises(ConnectError, match="did not happen within 0 seconds"):
        server.wait_until(lambda: False, "an answer", seconds=0.3)
    server.stop()
