"""Rule: of the drivers that want a checkpoint that no kernel locks, one has it, and one that lost it writes no more."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from headrace_standins import commit_changes, written

from headrace.errors import OptionError
from headrace.observe.checkpoint import HadoopFolder, LocalFolder
from headrace.pipeline import Pipeline, load_pipeline
from headrace.pipeline.lease import FOLDER, Lease, lease_holder
from headrace.testing.faults import arming
from headrace.testing.waiting import PATIENCE, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Folder(LocalFolder):
    """A folder in which a file is made by one of those who want to."""

    def create(self, file: str, text: str) -> bool:
        location = self.path / file
        location.parent.mkdir(parents=True, exist_ok=True)
        try:
            with location.open("x", encoding="utf-8") as made:
                made.write(text)
        except FileExistsError:
            return False
        return True

    def write(self, file: str, text: str) -> None:
        (self.path / file).write_text(text, encoding="utf-8")

    def delete(self, file: str) -> None:
        (self.path / file).unlink(missing_ok=True)


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def take(tmp_path: Path, clock: Clock) -> Any:
    def taken(name: str = "shop", **more: Any) -> Lease:
        return Lease(Folder(tmp_path), "s3a://b/state", name, 60, now=clock, **more)

    return taken


def test_a_second_driver_is_refused_and_told_who_holds_it_and_what_to_do(take: Any, clock: Clock) -> None:
    first = take("first")
    clock.now += 119
    with pytest.raises(OptionError) as caught:
        take("second")
    sentence = str(caught.value)
    assert sentence.startswith("The checkpoint 's3a://b/state' is in use by pipeline 'first' (process ")
    assert "its lease ends at 1970-01-12 13:48:40 UTC; headrace run --break-lock takes the checkpoint" in sentence
    # It was late, but nobody came between.
    first.confirm()
    first.confirm()


def test_one_that_ends_in_order_leaves_it_to_the_next_at_once(take: Any) -> None:
    take().release()
    take().release()
    take().confirm()


@pytest.mark.parametrize("breaks", [False, True])
def test_a_paused_driver_that_comes_back_finds_the_other_one(take: Any, clock: Clock, breaks: bool) -> None:
    paused = take("paused")
    clock.now += 10 if breaks else 121
    other = take("other", breaks=breaks)
    for act in (paused.confirm, paused.renew):
        with pytest.raises(OptionError, match=r"was taken over by pipeline 'other' \(process .*so this run stops"):
            act()
    # What it does at its end leaves the other one alone.
    paused.release()
    other.confirm()
    with pytest.raises(OptionError, match="is in use by pipeline 'other'"):
        take("third")


def test_a_renewed_lease_does_not_end(take: Any, clock: Clock) -> None:
    first = take("first")
    for _ in range(5):
        clock.now += 100
        first.renew()
    clock.now += 100
    with pytest.raises(OptionError, match="is in use by pipeline 'first'"):
        take("second")


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    begin, won, lost = threading.Barrier(8), list[Lease](), list[str]()

    def run(name: str) -> None:
        begin.wait()
        try:
            won.append(Lease(Folder(tmp_path), "state", name))
        except OptionError as error:
            lost.append(str(error))

    threads = [threading.Thread(target=run, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(won), len(lost)) == (1, 7)
    won[0].confirm()


def test_where_a_file_is_written_over_the_loser_sees_it_when_it_looks_next(tmp_path: Path, take: Any) -> None:
    """As on a store that asks for a file and then writes it."""
    first = take("first")
    (location,) = (tmp_path / FOLDER).iterdir()
    held = location.read_text()
    location.unlink()
    second = take("second")
    with pytest.raises(OptionError, match="taken over by pipeline 'second'"):
        first.confirm()
    second.confirm()
    location.write_text(held)
    with pytest.raises(OptionError, match="taken over by pipeline 'first'"):
        second.confirm()


def test_old_files_are_removed_and_numbers_go_on(tmp_path: Path, take: Any) -> None:
    for _ in range(6):
        take().release()
    assert sorted(int(file.name) for file in (tmp_path / FOLDER).iterdir()) == [4, 5, 6]
    assert lease_holder(Folder(tmp_path)) is None


# --- with Spark, on a file system that is not this machine's by its name ----------------------------------------------


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> str:
    """A URL of a folder that Hadoop reaches by a mount table, so that nothing takes it for a local one."""
    (tmp_path / "store").mkdir()
    name = f"lease{abs(hash(str(tmp_path)))}"
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./store", f"file://{tmp_path / 'store'}")
    return f"viewfs://{name}/store/state"


def pipeline(folder: Path, checkpoint: str, name: str = "shop", **more: Any) -> Pipeline:
    made = {
        "source": {"type": "folder", "hostname": str(folder / "commits")},
        "sink": {"type": "list_changes", "path": "out"},
        "pipeline": {"name": name, "checkpoint": checkpoint, "trigger": "100ms", **more},
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(made))
    return load_pipeline(file)


@pytest.mark.system
def test_two_drivers_on_another_file_system(
    spark: SparkSession, tmp_path: Path, commits: Path, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = HadoopFolder(spark, elsewhere)
    assert folder.local_path is None
    assert (folder.create("x/1", "a"), folder.create("x/1", "b"), folder.text("x/1")) == (True, False, "a")
    commit_changes(commits, 1, [("dbo.a", "c", "1")])
    gate = tmp_path / "gate"
    arming(tmp_path, monkeypatch)(f"pipeline.batch.shaped=hold:{gate}@2")
    first = pipeline(tmp_path, elsewhere).start(spark)
    until(lambda: len(written(tmp_path / "out")) == 1, "the first batch is there")
    status = pipeline(tmp_path, elsewhere).status(spark=spark, ask_source=False)
    assert status.running
    assert status.process
    with pytest.raises(OptionError, match="is in use by pipeline 'shop'"):
        pipeline(tmp_path, elsewhere).start(spark)
    # Paused with a batch in its hands, it finds the other one when it comes back, and its batch is in no sink.
    commit_changes(commits, 2, [("dbo.a", "c", "2")])
    until(gate.with_name("gate.reached").exists, "the second batch is held")
    taken = Lease(folder, elsewhere, "other", breaks=True)
    gate.touch()
    with pytest.raises(OptionError, match="was taken over by pipeline 'other'"):
        first.wait(PATIENCE)
    assert [texts for _, _, texts in written(tmp_path / "out")] == [["c 1"]]
    taken.confirm()
    taken.release()
    second = pipeline(tmp_path, elsewhere).start(spark, once=True)
    assert second.wait(PATIENCE)
    assert [texts for _, _, texts in written(tmp_path / "out")] == [["c 1"], ["c 2"]]


def test_without_a_lease_nothing_is_written(spark: SparkSession, tmp_path: Path, commits: Path, elsewhere: str) -> None:
    commit_changes(commits, 1, [("dbo.a", "c", "1")])
    assert pipeline(tmp_path, elsewhere, lease_seconds=0).start(spark, once=True).wait(PATIENCE)
    assert not (tmp_path / "store" / "state" / FOLDER).exists()
    assert pipeline(tmp_path, elsewhere).status(spark=spark, ask_source=False).running is None


def test_the_option_takes_seconds(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"'pipeline\.lease_seconds' must be a number of seconds\. Write 60, or 0"):
        pipeline(tmp_path, "s3a://b/state", lease_seconds="soon")
