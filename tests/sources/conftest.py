"""What the tests of all sources share."""

from __future__ import annotations

import pytest
from tests.support.emulator_pauses import without_pauses

from headrace.sources.signals import say_once


@pytest.fixture(autouse=True)
def every_test_is_a_process_of_its_own_to_the_log() -> None:
    """What is said once per process is said again in each test."""
    say_once.cache_clear()


@pytest.fixture(autouse=True)
def emulators_are_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)
