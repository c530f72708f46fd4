"""Messages that other products have read (tests/real/readers) are written the same today, byte for byte.

Where one differs, run `make test-real` with HEADRACE_RECORD_READERS=1: the readers then read it anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.real.readers.cases import CASES, Case, encoded

GOLDEN = Path(__file__).parents[1] / "golden" / "readers"


def lines(file: Path) -> list[object]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages_are_those_that_were_read(case: Case) -> None:
    assert encoded(case) == lines(GOLDEN / case.name / "messages.jsonl")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_read_is_what_the_rows_mean(case: Case) -> None:
    recordings = sorted(file.name for file in (GOLDEN / case.name).iterdir() if file.name != "messages.jsonl")
    expected = {f"{flink.format}_": flink.messages for flink in case.flink}
    if case.canal is not None:
        expected["canal."] = list(case.canal)
    assert recordings
    for name in recordings:
        (meant,) = (found for start, found in expected.items() if name.startswith(start))
        assert lines(GOLDEN / case.name / name) == meant
    assert all(any(name.startswith(start) for name in recordings) for start in expected)


def test_every_recording_has_its_case() -> None:
    assert sorted(folder.name for folder in GOLDEN.iterdir()) == sorted(case.name for case in CASES)
