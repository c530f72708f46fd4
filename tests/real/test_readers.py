"""What Headrace writes is read by the programs that it is written for: Canal's own classes and Flink's own formats.

A run also holds the recorded messages and readings in `tests/golden/readers` against what it finds, and with
HEADRACE_RECORD_READERS=1 writes them anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.real.readers.cases import CASES, Case, dumped, encoded
from tests.real.readers.programs import FLINK, read_by_canal, read_by_flink

GOLDEN = Path(__file__).parents[1] / "golden" / "readers"

# Where the other products' jars are not kept yet, Spark's resolver asks for them.
pytestmark = [pytest.mark.real, pytest.mark.jvm]


def recorded(case: Case, file: str, lines: list[object]) -> list[object]:
    """The recorded lines of a case, after writing these where that was asked for."""
    path = GOLDEN / case.name / file
    if os.environ.get("HEADRACE_RECORD_READERS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dumped(lines), encoding="utf-8")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_readers_read_what_was_said(case: Case) -> None:
    messages = encoded(case)
    values = [message["value"] for message in messages]
    assert case.flink or case.canal is not None
    for flink in case.flink:
        for version in FLINK:
            found = read_by_flink(version, flink, values)
            assert found == flink.messages
            assert found == recorded(case, f"{flink.format}_{version}.jsonl", found)
    if case.canal is not None:
        found = read_by_canal(values)
        assert found == list(case.canal)
        assert found == recorded(case, "canal.jsonl", found)
    # Last, so that bytes are recorded only once they are read.
    assert messages == recorded(case, "messages.jsonl", list(messages))
