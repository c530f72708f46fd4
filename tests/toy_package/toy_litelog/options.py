"""What users set on the source. Most options are Headrace's own, with the code that follows them."""

from __future__ import annotations

from typing import ClassVar

from headrace.options import Names
from headrace.settings import option
from headrace.sources.stream_options import ChunkSettings, ColumnSettings, RetrySettings, SignalSettings, snapshot_mode
from headrace.sources.tables.lost import LostTableSettings


class LitelogSettings(RetrySettings, SignalSettings, ColumnSettings, LostTableSettings, ChunkSettings):
    """The database, and what is captured of it."""

    path: str = option("The database, a file.")
    tables: tuple[str, ...] = option(
        "The tables to capture, as main.name; without it all that are captured.",
        default=(),
        names=Names("tables", "selects"),
    )
    snapshot_mode: str = option(
        "initial reads all rows and goes on with changes; initial_only ends there; no_data takes changes only; "
        "when_needed reads again where the log has lost changes.",
        default="initial",
        kind=snapshot_mode,
        choices=("initial", "initial_only", "no_data", "when_needed"),
    )
    fail_on_data_loss: bool = option(
        "Whether the run stops when changes are gone from the log. Otherwise it goes on with what is there.",
        default=True,
    )

    # What the planner asks for, and this source has no option for. The log does not say where transactions end, so a
    # batch ends where the log did when it was planned.
    snapshot_include_collection_list: ClassVar[tuple[str, ...]] = ()
    max_commits_per_trigger: ClassVar[int] = 0
    heartbeat_interval_ms: ClassVar[int] = 0
