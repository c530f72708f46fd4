"""The harness on the path, a broker, and a shop that changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[str]:
    from headrace_emulators.kafka.broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running.bootstrap
