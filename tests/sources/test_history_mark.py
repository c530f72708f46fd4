"""Rule: what an offset keeps of a database's history is written as earlier releases wrote it, and read back."""

from __future__ import annotations

import json

import pytest

from headrace.sources.change_tables.history_mark import ChangeTable, HistoryMark, NewestChange, Transaction

LAST = Transaction("50", "2026-11-21-12.00.00.000000")
NEWEST = NewestChange("40", ChangeTable('ASNCDC"."CDC_T', 7))


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (HistoryMark(), "{}"),
        (HistoryMark(restored=True), '{"restored": true}'),
        (HistoryMark(LAST), '{"transaction": ["50", "2026-11-21-12.00.00.000000"]}'),
        (
            HistoryMark(LAST, NEWEST, restored=True),
            '{"transaction": ["50", "2026-11-21-12.00.00.000000"], "newest": ["40", "ASNCDC\\".\\"CDC_T", 7], '
            '"restored": true}',
        ),
    ],
)
def test_a_mark_is_written_and_read_as_json_values(mark: HistoryMark, text: str) -> None:
    assert json.dumps(mark.to_json()) == text
    assert HistoryMark.from_json(json.loads(text)) == mark
