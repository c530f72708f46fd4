"""Rule: whoever asks for a pipeline hears of a parked table, why it is, and what brings it back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from tests.observe.checkpoints import write_batch

from headrace import complete_until
from headrace.changes import TableId
from headrace.cli.status import lines
from headrace.errors import NewerRelease, OptionError
from headrace.observe.checkpoint import PARKED
from headrace.observe.completeness import completeness
from headrace.observe.metrics import metrics
from headrace.observe.page import state
from headrace.observe.parked_tables import ParkedTable, of_database, parked_of_text, parked_text
from headrace.observe.progress import ProgressBoard
from headrace.observe.status import PipelineStatus, database_status
from headrace.sources.databases import Offsets
from headrace.sources.offset import Offset

NOON = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
A = ParkedTable(TableId("shop", "dbo", "a"), 7, NOON, "Column 'v' is int.", "Change it.", "again dbo.a")
SHOP = Offset(source="s", commit="05", commit_time=NOON, capture_time=NOON, initial=False, known=("dbo.a", "dbo.b"))
WHY = "Column 'v' is int. Change it. Then read the table again: again dbo.a"


def test_the_status_says_why_and_what_to_do_and_is_not_fine() -> None:
    found = database_status("shop", SHOP, None, None, NOON, asked=False, parked={"dbo.a": A})
    status = PipelineStatus("p", "c", 8, databases=(found,))
    assert not status.is_fine
    assert status.complete_until is None
    assert [line for line in lines(status, NOON) if "table" in line] == [
        f"  table      dbo.a  parked since batch 7, 2026-05-01 12:00:00 UTC (0 s ago): {WHY}",
        "  table      dbo.b  complete until 2026-05-01 12:00:00 UTC (0 s ago)",
    ]
    tables = status.to_json()["databases"]["shop"]["tables"]
    assert tables["dbo.b"]["parked"] is None
    assert tables["dbo.a"]["parked"] == {
        "batch": 7,
        "at": NOON.isoformat(),
        "sentence": "Column 'v' is int.",
        "remedy": "Change it.",
        "command": "again dbo.a",
    }
    assert [table.state for table in status.progress().tables] == ["parked", "streaming"]


def test_a_run_says_it_in_its_metrics_and_on_its_page() -> None:
    complete = completeness([Offsets({"shop": SHOP})], 8, [A])
    progress = ProgressBoard().progress(SHOP, True, complete=complete, parked=[A])
    assert [(table.state, table.parked, table.complete_until) for table in progress.tables] == [
        ("parked", WHY, None),
        ("streaming", "", NOON),
    ]
    assert metrics(progress)["headrace_parked_tables"] == 1
    assert metrics(progress)['headrace_tables{state="parked"}'] == 1
    assert state(progress) == ("bad", "tables are parked")


def test_of_several_databases_it_is_the_table_of_its_own() -> None:
    other = ParkedTable(TableId("crm", "dbo", "a"), 7, NOON, "x", "", "y")
    assert of_database([A, other], "crm", several=True) == {"dbo.a": other}
    complete = completeness([Offsets({"shop": SHOP, "crm": SHOP})], 8, [A])
    assert (complete.of("shop.dbo.a"), complete.of("crm.dbo.a")) == (None, NOON)


def test_who_waits_for_a_parked_table_waits(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, Offsets({"shop": SHOP}).to_text())
    assert complete_until(tmp_path).overall == NOON
    (tmp_path / PARKED).write_text(parked_text([A]))
    found = complete_until(tmp_path)
    assert (found.overall, found.of("dbo.b")) == (None, NOON)


def test_what_is_kept_comes_back_and_a_later_or_broken_file_is_refused() -> None:
    assert parked_of_text(parked_text([A])) == (A,)
    with pytest.raises(NewerRelease):
        parked_of_text('{"version": 2, "parked": []}')
    for text in ("", "[]", '{"version": 1}', '{"version": 1, "parked": [{}]}'):
        with pytest.raises(OptionError, match="The checkpoint is damaged"):
            parked_of_text(text)
