"""Rule: messages that say a structure come once for each version of a table, whatever the batches and starts are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.formats.convert import format_named
from headrace.observe.progress import ProgressBoard
from headrace.pipeline.announced_structures import AnnouncedStructures
from headrace.pipeline.batch import BatchWriter
from headrace.pipeline.batch_inputs import Delivery, RowInput
from headrace.pipeline.target import Target
from headrace.sinks.files import FilesSink
from headrace.testing.change_history import Batch, table

T, U = table(), table("u")
WIDER = table(id="int32", a="string", b="string", c="string")


@pytest.mark.system
def test_metadata_comes_once_for_each_structure_over_all_batches_and_starts(spark: Any, tmp_path: Path) -> None:
    kept: list[str | None] = [None]

    def run(batches: dict[int, Batch], topic: str = "t") -> list[tuple[str, str, int]]:
        """The metadata that a start writes."""
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        options = {"topic": topic}
        sink = FilesSink.of({"path": str(folder)})
        target = Target("files", sink, format_named("qlik_json", options), f"qlik_json {options}", "sink")
        target = replace(target, sink=_AtOnePlace(sink))
        writer = BatchWriter(
            "p",
            RowInput(),
            Delivery(
                [target],
                ProgressBoard(),
                structures=AnnouncedStructures(kept[0], lambda text: kept.__setitem__(0, text)),
            ),
        )
        writer.begin("checkpoint")
        for number, batch in batches.items():
            writer(batch.rows(spark), number)
        lines = [line for file in sorted(folder.rglob("*")) if file.is_file() for line in _lines(file)]
        found = [message["message"]["lineage"] for message in lines if message["type"] == "MD"]
        assert len(lines) > len(found)
        return sorted((one["table"], one["tableVersion"]) for one in found)

    first = Batch(T, T, U).add("c", T, 1, {"id": "1", "a": "x", "b": None})
    more = Batch(T).add("c", T, 3, {"id": "2", "a": "x", "b": None})
    assert run({0: first, 1: more}) == [("t", 1), ("u", 1)]
    # A batch that comes again has the messages that it had.
    assert run({1: more, 2: more}) == []
    assert run({0: first}) == [("t", 1), ("u", 1)]
    wider = Batch(WIDER).add("c", WIDER, 5, {"id": "3", "a": "x", "b": None, "c": "y"})
    again = Batch(T).add("c", T, 7, {"id": "4", "a": "x", "b": None})
    for batch, version in ((wider, "2"), (again, "3")):
        batch.lines[0]["source"] = {"tableVersion": version}
    assert run({3: wider, 4: again, 5: again}) == [("t", 2), ("t", 3)]
    # Readers of another topic have nothing.
    assert run({6: more}, topic="other") == [("t", 1)]


class _AtOnePlace:
    """A sink that says of each start that it writes to the same place."""

    def __init__(self, sink: FilesSink) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def places(self, *_: Any) -> frozenset[str]:
        return frozenset(["the same"])


def _lines(file: Path) -> list[Any]:
    if file.name.startswith((".", "_")):
        return []
    messages = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(one["value"]) if isinstance(one.get("value"), str) else one for one in messages]


@pytest.mark.parametrize(
    ("kept", "sentence"), [("{}", "can't be read"), ('{"version": 2, "sinks": {}}', "has format version 2")]
)
def test_what_is_kept_and_can_not_be_read_is_refused(kept: str, sentence: str) -> None:
    with pytest.raises(HeadraceError, match=sentence):
        AnnouncedStructures(kept)
