"""Rule: `headrace repair` shows what it will do, does it when it is confirmed, and what is lost stays on record."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.observe.checkpoints import write_batch
from tests.support.status_shop import Shop
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.observe.checkpoint import SKIPPED, LocalFolder
from headrace.observe.messages import SkippedMessages, skipped_messages, skipped_text
from headrace.pipeline.checkpoint import owned
from headrace.pipeline.topic_moves import _recorded
from headrace.sources.signal_files import present_files, read_file

AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    made.options["signal_path"] = str(tmp_path / "signals")
    made.sinks = [
        {"type": "delta", "path": "lake"},
        {"type": "files", "path": "out", "format": {"type": "debezium_json", "topic.prefix": "p"}},
        {"type": "delta", "path": "log", "stored_as_scd_type": "append"},
    ]
    yield made
    made.database.close()


def repair(shop: Shop, *arguments: str, input: str | None = None) -> tuple[int, str]:
    kind, *rest = arguments
    done = CliRunner().invoke(app, ["repair", kind, shop.file(), *rest], input=input)
    return done.exit_code, done.output


def signals(shop: Shop) -> list[tuple[str, dict[str, object]]]:
    folder = shop.folder / "signals"
    found = [read_file(folder, name) for name in sorted(present_files(str(folder)))]
    return [(one.type, json.loads(one.data or "{}")) for one in found]


def insert(shop: Shop, *keys: int) -> None:
    for key in keys:
        shop.database.execute("INSERT INTO dbo.t VALUES (?)", (key,))
    shop.database.capture()


def test_a_reread_is_shown_and_sent_when_it_is_confirmed(shop: Shop) -> None:
    shop.level()
    shown = [
        f"shop: reread (checkpoint {shop.folder / 'state'})",
        "  dbo.t: all its rows are read again, and its changes wait until then, about 5 rows",
        "    sink 1 (delta) dbo.t: gets every row as it is, and rows that the source no longer has go",
        "    sink 2 (files) p.shop.dbo.t: gets a message for every row again, as a read",
        "    sink 3 (delta) dbo.t: gets every row once more, as a read",
        "  note  The pipeline is not running; its next run takes this.",
    ]
    code, text = repair(shop, "reread", "dbo.t", "--dry-run")
    assert (code, text.splitlines(), signals(shop)) == (0, shown, [])
    # Nobody can be asked here.
    code, text = repair(shop, "reread", "dbo.t")
    assert (code, text.splitlines()[-1]) == (
        2,
        "Nothing was done, because nobody confirmed it. Say --yes, or --dry-run to look.",
    )
    assert signals(shop) == []
    code, text = repair(shop, "reread", "dbo.t", "--yes")
    assert (code, text.splitlines()[:-1]) == (0, shown)
    assert signals(shop) == [("execute-snapshot", {"data-collections": ["dbo.t"], "type": "blocking"})]


def test_an_incremental_reread_of_some_rows(shop: Shop) -> None:
    shop.level()
    with owned(shop.folder / "state", "shop"):
        code, text = repair(shop, "reread", "dbo.t", "--incremental", "--filter", "id > 3", "--yes", "--json")
    found = json.loads(text)
    assert (code, found["repair"], found["parts"][0]["does"]) == (
        0,
        "reread",
        "some of its rows are read again, beside its changes",
    )
    assert found["parts"][0]["sinks"][0]["effect"].endswith("rows that the source no longer has stay")
    assert "takes this with one of its next batches" in found["notes"][0]
    assert len(found["done"]) == 1
    filter = [{"data-collection": "dbo.t", "filter": "id > 3"}]
    assert signals(shop) == [
        ("execute-snapshot", {"data-collections": ["dbo.t"], "type": "incremental", "additional-conditions": filter})
    ]


def test_a_rewind_says_how_many_changes_come_again(shop: Shop) -> None:
    shop.level()
    place = shop.offset.commit
    insert(shop, 6, 7)
    shop.batch()
    code, text = repair(shop, "rewind", "dbo.t", "--to", place, "--yes")
    _, part, *sinks, _, _ = text.splitlines()
    assert code == 0
    assert part.startswith(f"  dbo.t: its changes after {place} (")
    assert part.endswith(f" come again (delivered up to {shop.offset.commit}), about 2 changes")
    assert sinks == [
        "    sink 1 (delta) dbo.t: takes the changes that it lacks; those that it has change nothing",
        "    sink 2 (files) p.shop.dbo.t: gets these changes again",
        "    sink 3 (delta) dbo.t: gets these changes once more",
    ]
    assert signals(shop) == [("rewind-changes", {"data-collections": ["dbo.t"], "position": place})]
    shop.batch()
    assert shop.offset.tables["dbo.t"].commit == place


def test_a_skip_needs_yes_and_is_on_record_until_the_table_is_read_again(shop: Shop) -> None:
    shop.level()
    before = shop.offset.commit
    insert(shop, 6, 7)
    code, text = repair(shop, "skip", "dbo.t", "--to", "now")
    assert (code, text.splitlines()[-1]) == (
        2,
        "Nothing was done, because this loses changes. Say --yes to lose them.",
    )
    assert "about 2 changes" in text
    assert signals(shop) == []
    assert repair(shop, "skip", "dbo.t", "--to", "now", "--yes")[0] == 0
    shop.batch()
    upto = shop.offset.tables["dbo.t"].commit
    shop.batch()
    code, text = shop.status()
    assert code == 1
    assert f"; a repair skipped its changes after {before} up to {upto}: read it again" in text
    table = shop.json()[1]["databases"]["shop"]["tables"]["dbo.t"]
    assert (table["skipped"], table["lost"]) == ([before, upto], False)


MISTAKES = [
    (("reread", "dbo.tt"), "No captured table matches 'dbo.tt'. Did you mean 'dbo.t'?"),
    (("reread", "dbo.t", "--filter", "id > 3"), "A whole table has no filter. Add --incremental to read some rows"),
    (("rewind", "dbo.t", "--to", "soon"), "'soon' is neither an LSN nor a time with its zone."),
    (("rewind", "dbo.t", "--to", "earliest"), "'earliest' is neither an LSN nor a time with its zone."),
    (("reread", "dbo.t", "--incremental", "--filter", "id >"), "The server refuses the filter of table 'dbo.t'"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[sentence[:40] for _, sentence in MISTAKES])
def test_a_mistake_is_one_sentence_and_2(shop: Shop, arguments: tuple[str, ...], sentence: str) -> None:
    shop.level()
    code, text = repair(shop, *arguments, "--yes")
    assert code == 2
    assert text.startswith(sentence)
    assert text.count("\n") == 1
    assert signals(shop) == []


def test_a_pipeline_that_was_never_started_has_nothing_to_repair(shop: Shop) -> None:
    code, text = repair(shop, "reread", "dbo.t", "--yes")
    assert (code, text) == (
        2,
        "Pipeline 'shop' has no finished batch yet, so there is nothing to repair. Run it first.\n",
    )


# --- messages of Kafka that are passed over ---------------------------------------------------------------------------


def test_what_is_passed_over_is_on_record_until_it_is_read() -> None:
    ends = {"a": {"0": 10, "1": 5}}
    first = _recorded((), ends, {"a": {"0": 20, "1": 5}}, AT)
    assert first == [SkippedMessages("a", 0, 10, 20, AT)]
    # Read up to 30; a rewind into what was passed over reads the rest of it.
    second = _recorded(first, {"a": {"0": 30, "1": 5}}, {"a": {"0": 15, "1": 5}}, AT)
    assert second == [SkippedMessages("a", 0, 10, 15, AT)]
    assert _recorded(second, {"a": {"0": 30, "1": 5}}, {"a": {"0": 10, "1": 5}}, AT) == []


def test_status_shows_it_and_ends_with_1(tmp_path: Path) -> None:
    made = {
        "source": {"type": "kafka", "bootstrap.servers": "k:9092", "topics": "a", "format": {"type": "debezium_json"}},
        "sink": {"type": "delta", "path": "lake"},
        "pipeline": {"name": "mirror", "checkpoint": "state"},
    }
    (tmp_path / "pipeline.yaml").write_text(json.dumps(made))
    write_batch(tmp_path / "state", 0, '{"a":{"0":20}}')
    (tmp_path / "state" / SKIPPED).write_text(skipped_text([SkippedMessages("a", 0, 10, 20, AT)]))
    assert skipped_messages(LocalFolder(tmp_path / "state")) == (SkippedMessages("a", 0, 10, 20, AT),)
    done = CliRunner().invoke(app, ["status", str(tmp_path / "pipeline.yaml")])
    assert done.exit_code == 1
    assert "  skipped    topic a, partition 0, offsets 10 to 19, by a repair 2026-01-01 00:00:00 UTC (" in done.output
