"""Rule: a file that a version names is never taken for an orphan, however its path is written."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.errors import SinkError
from headrace.sinks.lake.data_files import is_own_name
from headrace.sinks.lake.delta.live_files import names_in_log
from headrace.sinks.lake.storage import Folder
from headrace.sinks.lake.table import LakeTable
from headrace.sinks.lake.upkeep import orphans_of

LATER = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
NAMES = [f"headrace-{UUID(int=number)}.zstd.parquet" for number in range(4)]


class Table:
    """What `orphans_of` asks of a table."""

    label = "Delta table t"

    def __init__(self, folder: Folder | str, names: Any) -> None:
        self.data_folder = lambda: folder
        self.names_of_files = names


def orphans(folder: Folder | str, names: Any) -> list[str]:
    return [Path(one.path).name for one in orphans_of(cast("LakeTable", Table(folder, names)), LATER)]


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (NAMES[0], True),
        (f"bucket/t/day=1/{NAMES[0]}", True),
        ("part-00000-00000000-0000-0000-0000-000000000000-c000.zstd.parquet", False),
        (f"{NAMES[0]}.crc", False),
        (f"copy of {NAMES[0]}", False),
        (f"{NAMES[0]}/data", False),
    ],
)
def test_only_names_that_a_writer_gives_are_ours(path: str, own: bool) -> None:
    assert is_own_name(path) is own


def test_the_path_of_a_named_file_may_be_written_in_any_form(tmp_path: Path) -> None:
    real, link = tmp_path / "real table", tmp_path / "link"
    (real / "_delta_log").mkdir(parents=True)
    (real / "day=1").mkdir()
    link.symlink_to(real)
    for name in (NAMES[0], f"day=1/{NAMES[1]}", NAMES[2], NAMES[3]):
        (real / name).write_bytes(b"rows")
    paths = [f"file:{tmp_path}/real%20table/{NAMES[0]}", f"day=1/{NAMES[1]}", f"file://{link}/../link//{NAMES[2]}"]
    lines = "\n".join(f'{{"add": {{"path": "{path}"}}}}' for path in paths)
    (real / "_delta_log" / f"{0:020d}.json").write_text(lines)
    folder = Folder(str(link))
    assert orphans(folder, lambda: names_in_log(folder)) == [NAMES[3]]


def test_a_folder_that_is_not_reached_and_a_log_that_is_not_read_stop_it(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="because it is in another world") as caught:
        orphans("it is in another world", set)
    assert "remove_orphan_files" in caught.value.remedy
    (tmp_path / NAMES[0]).write_bytes(b"rows")
    with pytest.raises(SinkError, match=r"the log of .* is not there"):
        orphans(Folder(str(tmp_path)), lambda: names_in_log(Folder(str(tmp_path))))
