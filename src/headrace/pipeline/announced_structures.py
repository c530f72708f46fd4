"""Which structures of tables were announced to a sink: kept in the checkpoint, so that a message announces each once.

A batch that is written again has the same messages, so only what earlier batches announced counts for it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.formats.base import Structure
from headrace.observe.checkpoint import STRUCTURES, reading
from headrace.versions import require_readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipeline.target import Target

_VERSION = 1
_ANNOUNCES = "op = 'schema' and table_schema is not null"
_PARTS = ", ".join(f"coalesce(table.{part}, '')" for part in ("database", "schema", "name"))
_STRUCTURE = f"array(schema_id, {_PARTS}, coalesce(source['tableVersion'], ''))"
_WITHOUT = "Without the file, messages that announce structures come once more."


class AnnouncedStructures:
    """What was announced to the sinks of a run. Runs in the driver.

    Args:
        kept: the text in the checkpoint; None where there is none.
        keep: writes another one.

    Raises:
        OptionError: the text can't be read.
    """

    def __init__(self, kept: str | None = None, keep: Callable[[str], None] = lambda text: None) -> None:
        self._keep = keep
        self._batches: dict[str, dict[Structure, int]] = {}
        if kept is None:
            return
        with reading(STRUCTURES, without=_WITHOUT):
            data: Any = json.loads(kept)
            require_readable(
                data["version"], _VERSION, what=f"The checkpoint's '{STRUCTURES}'", remedy="Go on with that release."
            )
            self._batches = {
                sink: {tuple(one["structure"]): int(one["batch"]) for one in structures}
                for sink, structures in data["sinks"].items()
            }

    def before(self, target: Target, batch: int) -> frozenset[Structure]:
        known = self._batches.get(_place(target), {})
        return frozenset(structure for structure, first in known.items() if first < batch)

    def add(self, batch: int, announced: Iterable[tuple[Target, Iterable[Structure]]]) -> None:
        news = False
        for target, structures in announced:
            known = self._batches.setdefault(_place(target), {})
            for structure in structures:
                # A checkpoint that was set back begins again.
                if known.get(structure, batch + 1) > batch:
                    known[structure] = batch
                    news = True
        if news:
            self._keep(_text(self._batches))


def structures_in(rows: DataFrame) -> list[Structure]:
    """The structures that a batch's rows announce. Runs a small Spark job."""
    structures = rows.where(_ANNOUNCES).selectExpr(f"{_STRUCTURE} as one").distinct().collect()
    return sorted(tuple(row["one"]) for row in structures)


def announced_once(rows: DataFrame) -> DataFrame:
    """The rows, of which only the first one announces a structure; tasks would each do it. Lazy."""
    from pyspark.sql import functions as sf

    first = rows.where(_ANNOUNCES).groupBy(sf.expr(_STRUCTURE)).agg(sf.expr("min_by(struct(*), position) as one"))
    return rows.where(f"not coalesce({_ANNOUNCES}, false)").unionByName(first.select("one.*"))


def _place(target: Target) -> str:
    """What a sink and its messages are: with another topic, server or task, readers know nothing yet."""
    parts = (target.type, target.format_key, target.shaping.key, *sorted(target.sink.places()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _text(batches: Mapping[str, Mapping[Structure, int]]) -> str:
    sinks = {
        sink: [{"structure": structure, "batch": batch} for structure, batch in sorted(known.items())]
        for sink, known in batches.items()
    }
    return json.dumps({"version": _VERSION, "sinks": sinks})
