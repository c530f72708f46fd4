"""Rule: a run that is followed keeps its figures beside its checkpoint, without secrets, and why it ended; what reads
them takes nothing that is old, half written or of another form for a run that works."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.observe.checkpoints import write_batch
from tests.support.status_shop import Shop

from headrace.errors import ConnectError, OptionError
from headrace.observe.checkpoint import LocalFolder, unknown_files
from headrace.observe.flow import Flow
from headrace.observe.history import FILE, KeptFigures
from headrace.observe.messages import MessageCounts
from headrace.observe.page import figures_of_status
from headrace.observe.progress import BatchDone, Delays, PipelineProgress, TableState
from headrace.observe.server import ListenAddress
from headrace.observe.troubles import Troubles
from headrace.pipeline.checkpoint import owned
from headrace.pipeline.model import read_model
from headrace.pipeline.pipeline import load_pipeline, serve_pages
from headrace.pipeline.status import StatusWatcher
from headrace.pipeline.watch import FigureKeeper, Watch
from headrace.pipeline.written_tables import flow_of
from headrace.testing.waiting import until

DONE = BatchDone(3, {"c": 5}, ("dbo.t",), 1.5, {"plan": 0.5, "read": 1.0, "sink (memory)": 0.5}, 2.25)
PROGRESS = PipelineProgress(
    batches=4,
    rows=1234,
    rows_per_second=55.0,
    lag_seconds=1.0,
    tables=(TableState("dbo.t", {"c": 1234}),),
    recent=(DONE,),
    delays=Delays(0.5, 2.25, 2.25, 1),
)
LOST = ConnectError("Server 'db' closed the connection (hunter2).", remedy="Check that it is up.")


def kept(text: str | None) -> KeptFigures:
    found = KeptFigures.from_text(text)
    assert found is not None
    return found


def test_a_run_that_is_followed_keeps_its_figures_without_secrets_and_then_why_it_ended() -> None:
    written: list[str] = []
    keeper = FigureKeeper(written.append, 2.0, Flow(), lambda text: text.replace("hunter2", "***"))
    watch = Watch("shop", lambda: PROGRESS, str, followers=[keeper])
    watch.begin()
    watch.follow()
    until(lambda: bool(written), "the first figures")
    assert kept(written[0]).figures["rows"] == 1234
    assert not kept(written[0]).figures["troubles"]
    ended = Troubles()
    ended.add(LOST, fatal=True)
    watch.close(ended.recent())
    last = kept(written[-1]).figures
    assert (last["state"], last["troubles"][0]["remedy"]) == ("stopped by an error", "Check that it is up.")
    assert "***" in last["troubles"][0]["sentence"] and "hunter2" not in "".join(written)
    # What was said last stays.
    count = len(written)
    watch.close()
    assert len(written) == count


def test_what_came_after_the_last_look_is_in_the_last_figures() -> None:
    written: list[str] = []
    now = [PROGRESS]
    watch = Watch("shop", lambda: now[0], str, followers=[FigureKeeper(written.append, 60.0, Flow(), str)])
    watch.begin()
    watch.follow()
    until(lambda: bool(written), "the first figures")
    now[0] = replace(PROGRESS, batches=PROGRESS.batches + 1)
    watch.close()
    assert kept(written[-1]).figures["batches"] == kept(written[0]).figures["batches"] + 1


def test_a_run_that_can_not_be_asked_at_its_end_keeps_what_was_seen() -> None:
    written: list[str] = []
    ended = threading.Event()

    def ask() -> PipelineProgress:
        if ended.is_set():
            raise RuntimeError("Spark is gone")
        return PROGRESS

    watch = Watch("shop", ask, str, followers=[FigureKeeper(written.append, 60.0, Flow(), str)])
    watch.begin()
    watch.follow()
    until(lambda: bool(written), "the first figures")
    ended.set()
    watch.close()
    assert len(written) == 2
    assert kept(written[1]).figures["rows"] == 1234


def test_a_run_that_did_not_begin_keeps_nothing() -> None:
    written: list[str] = []
    watch = Watch("shop", lambda: PROGRESS, str, followers=[FigureKeeper(written.append, 2.0, Flow(), str)])
    watch.follow()
    watch.close()
    assert written == []


def test_a_run_that_nobody_follows_keeps_nothing() -> None:
    written: list[str] = []
    watch = Watch("shop", lambda: PROGRESS, str, followers=[FigureKeeper(written.append, 2.0, Flow(), str)])
    watch.begin()
    watch.close()
    assert written == []


def test_a_run_goes_on_where_its_figures_can_not_be_kept() -> None:
    def full(text: str) -> None:
        raise OSError("no space is left")

    watch = Watch("shop", lambda: PROGRESS, str, followers=[FigureKeeper(full, 2.0, Flow(), str)])
    watch.begin()
    watch.follow()
    until(lambda: watch.figures() is not None, "the first look")
    watch.close()


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"form": 2, "every": 1, "figures": {"time": 1}}', '{"form": 1}']
)
def test_what_can_not_be_read_is_as_if_it_were_not_there(text: str | None) -> None:
    assert KeptFigures.from_text(text) is None


def test_an_earlier_release_goes_on_from_a_checkpoint_that_has_them(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, "{}")
    (tmp_path / FILE).write_text("{}")
    assert unknown_files(LocalFolder(tmp_path)) == []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.level()
    return made


def keep(shop: Shop, time: float, *, fatal: bool = False) -> None:
    troubles = Troubles()
    troubles.add(LOST, fatal=fatal)
    file = shop.folder / "state" / FILE
    watch = Watch("shop", lambda: PROGRESS, str, followers=[FigureKeeper(file.write_text, 2.0, Flow(), str)])
    watch.begin()
    watch.follow()
    until(lambda: watch.figures() is not None, "the first look")
    watch.close(troubles.recent())
    data = json.loads(file.read_text())
    data["figures"]["time"] = time
    file.write_text(json.dumps(data))


def status_watcher(shop: Shop, now: float) -> StatusWatcher:
    return StatusWatcher(read_model(Path(shop.file())), None, clock=lambda: now)


def test_a_run_that_works_is_shown_as_it_says_itself(shop: Shop) -> None:
    keep(shop, 1000.0)
    looking = status_watcher(shop, 1003.0)
    with owned(shop.folder / "state", "shop"):
        looking.refresh()
    found = looking.figures()
    assert found is not None
    assert (found["state"], found["rows_per_second"], found["time"]) == ("streaming", 55.0, 1000.0)
    assert looking.points(0) == [{"time": 1000.0, "lag_seconds": 1.0, "rows_per_second": 55.0}]
    assert looking.points(1000.0) == []


def test_a_run_that_keeps_no_figures_is_shown_by_its_checkpoint_and_its_source(shop: Shop) -> None:
    # It was killed, and another one runs that nobody follows.
    keep(shop, 1000.0)
    looking = status_watcher(shop, 1060.0)
    with owned(shop.folder / "state", "shop"):
        looking.refresh()
    found = looking.figures()
    assert found is not None
    assert (found["state"], found["lag_seconds"], found["time"]) == ("up to date", 0.0, 1060.0)
    assert [(table["table"], table["state"]) for table in found["tables"]] == [("dbo.t", "streaming")]


@pytest.mark.parametrize(("fatal", "told"), [(False, ("off", "not running")), (True, ("bad", "stopped by an error"))])
def test_a_pipeline_that_does_not_run_is_shown_with_what_its_last_run_said(
    shop: Shop, fatal: bool, told: tuple[str, str]
) -> None:
    keep(shop, 1000.0, fatal=fatal)
    looking = status_watcher(shop, 1001.0)
    looking.refresh()
    found = looking.figures()
    assert found is not None
    assert ((found["level"], found["state"]), found["lag_seconds"], found["rows"]) == (told, 0.0, 1234)
    assert found["troubles"][0]["sentence"] == LOST.message
    assert found["tables"][0]["rows"] == {"c": 1234}
    assert found["complete_until"] is not None


def test_what_is_wrong_with_the_source_of_a_pipeline_that_does_not_run_comes_first(shop: Shop) -> None:
    shop.server.set_agent(running=False)
    looking = status_watcher(shop, 1000.0)
    looking.refresh()
    found = looking.figures()
    assert found is not None
    assert (found["level"], found["state"]) == ("bad", "source does not capture")


def test_a_pipeline_that_was_never_started_says_so(tmp_path: Path) -> None:
    looking = status_watcher(Shop(tmp_path), 1000.0)
    looking.refresh()
    found = looking.figures()
    assert found is not None
    assert (found["level"], found["state"]) == ("off", "not started")


def test_a_checkpoint_that_can_not_be_read_is_told_with_the_remedy(shop: Shop) -> None:
    (shop.folder / "state" / "headrace-later.json").write_text("{}")
    looking = status_watcher(shop, 1000.0)
    looking.refresh()
    found = looking.figures()
    assert found is not None
    assert found["state"] == "can't be looked at"
    assert found["troubles"][0]["remedy"]


def test_messages_left_out_are_shown_without_a_run(shop: Shop) -> None:
    status = load_pipeline(shop.file()).status(ask_source=False)
    counts = MessageCounts({"No JSON.": 1}, left_out=1)
    found = figures_of_status(
        type(status)("shop", "state", 1, messages=counts), flow_of(read_model(Path(shop.file()))), 1000.0
    )
    assert (found["state"], found["messages"]["reasons"]) == ("messages left out", {"No JSON.": 1})


def test_a_page_of_several_pipelines_needs_names_that_differ(shop: Shop) -> None:
    twice = [load_pipeline(shop.file()), load_pipeline(shop.file())]
    with (
        pytest.raises(OptionError, match="Two pipelines have the name 'shop'"),
        serve_pages(twice, ListenAddress("127.0.0.1", 0)),
    ):
        pass


def test_the_status_says_what_the_run_says(shop: Shop) -> None:
    keep(shop, 1000.0)
    text = shop.status()[1]
    assert "  run        1,234 rows in 4 batches, 55 rows/s; as of 1970-01-01 00:16:40 UTC" in text
    assert "  delay      p50 0.5 s, p90 2.2 s, p99 2.2 s; last 1 batch, each by its oldest change" in text
    assert "  batch      2.0 s on average: plan 0.5 s, read 1.0 s, sink (memory) 0.5 s" in text
    assert "  warning    Server 'db' closed the connection (hunter2). Check that it is up. (" in text
    assert shop.json()[1]["run"]["rows"] == 1234
