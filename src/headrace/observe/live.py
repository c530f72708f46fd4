"""Progress on a screen: a table that is redrawn in a terminal, a plain line for each batch elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headrace.changes.row import Operation
from headrace.observe.messages import MessageCounts
from headrace.observe.progress import BatchDone, PipelineProgress, TableState
from headrace.sources.health import CaptureState, Health, size_text, span_text

_WORDS = {
    Operation.READ: "read",
    Operation.CREATE: "inserts",
    Operation.UPDATE: "updates",
    Operation.DELETE: "deletes",
    Operation.TRUNCATE: "truncates",
    Operation.ERROR: "unreadable",
}
_BAR_WIDTH = 10
_QUIET_SECONDS, _QUIET_GROWS = 5.0, 1.5
"""After how long without a line a log says what a run does, before its first batch and while one is under way, and by
what that grows each time."""
_MOST_COLUMNS = 5


class LiveView:
    """Shows a pipeline's progress while the `with` block runs.

    Args:
        console: where to; a terminal gets a live table, anything else plain lines.
        title: the line above the table.
        clock: seconds that only grow.
        rate: whether rows per second are shown; of a source that somebody changes at his own pace they say nothing.
    """

    def __init__(
        self, console: Console, title: str, clock: Callable[[], float] = time.monotonic, *, rate: bool = True
    ) -> None:
        self._console = console
        self._rate = rate
        self._clock = clock
        self._said_at, self._quiet = clock(), _QUIET_SECONDS
        self._title = title
        self._live = Live(console=console, refresh_per_second=8, transient=False) if console.is_terminal else None
        # One for the whole run, or it would begin to turn again with each look.
        self._spinner = Spinner("dots" if "utf" in console.encoding.lower() else "line")
        self._shown: PipelineProgress | None = None
        self._told = 0
        self._told_number = -1
        self._last_state: CaptureState | None = None

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            if self._shown is not None:
                # A run that fails leaves no spinner that stands still.
                self._live.update(screen(self._shown, self._title, rate=self._rate), refresh=True)
            self._live.stop()

    def update(self, progress: PipelineProgress, *, last: bool = False) -> None:
        """Show the state of now: in a terminal the table; elsewhere a line for each batch since the last time.

        A change of the source's health, and the end (`last`), give a line with the sums. Before the first batch, and
        while one takes long, a line every few seconds says what is done, more seldom the longer it takes.
        """
        if self._live is not None:
            self._shown = progress
            spinner = None if last else self._spinner
            self._live.update(screen(progress, self._title, spinner, rate=self._rate), refresh=last)
            return
        lines = self._batches(progress)
        state = None if progress.health is None else progress.health.state
        if last or state is not self._last_state:
            self._last_state = state
            lines.append(line(progress, rate=self._rate))
        working = progress.under_way is not None or not progress.batches
        if lines:
            self._quiet = _QUIET_SECONDS
        elif working and self._clock() - self._said_at >= self._quiet:
            self._quiet *= _QUIET_GROWS
            lines.append(now_text(progress))
        for text in lines:
            self._said_at = self._clock()
            self._console.print(text, highlight=False, soft_wrap=True)

    def _batches(self, progress: PipelineProgress) -> list[str]:
        """A line for each batch that was not printed yet. The lag is current, so it follows the newest batch."""
        fresh = [batch for batch in progress.recent if batch.number > self._told_number]
        if not fresh:
            return []
        # Only the last ones are kept.
        missed = progress.done - self._told - len(fresh)
        self._told, self._told_number = progress.done, fresh[-1].number
        lines = [batch_line(batch, progress) for batch in fresh]
        more = [f"{missed:,} batches more"] if missed else []
        return [*more, *lines[:-1], f"{lines[-1]}; lag {_lag(progress)}"]


def screen(progress: PipelineProgress, title: str, spinner: Spinner | None = None, *, rate: bool = True) -> Group:
    """What a terminal shows: one row per table, what the run does now beside a spinner, and the sums."""
    parts: list[RenderableType] = [_table(progress, title)]
    if spinner is not None:
        spinner.update(text=Text(now_text(progress), no_wrap=True, overflow="ellipsis"))
        parts.append(spinner)
    # Reasons may hold what a console takes for markup.
    parts.append(Text(_foot(progress, rate=rate)))
    if progress.messages:
        parts.append(Text(messages_text(progress.messages)))
    return Group(*parts)


def _table(progress: PipelineProgress, title: str) -> RenderableType:
    if not progress.tables:
        return Text(title, style="bold")
    drawn = Table(
        title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    # On a narrow screen names are folded, and never numbers cut.
    drawn.add_column("table", overflow="fold")
    drawn.add_column("read", justify="right", no_wrap=True)
    drawn.add_column("snapshot", no_wrap=True)
    for heading in ("inserts", "updates", "deletes"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    odd = any(state.rows.get(Operation.ERROR) for state in progress.tables)
    if odd:
        drawn.add_column("unreadable", justify="right", style="red")
    for state in progress.tables:
        cells: list[RenderableType] = [state.table or "(no table)", _count(_rows_read(state)), _snapshot_cell(state)]
        counted = (Operation.CREATE, Operation.UPDATE, Operation.DELETE, *([Operation.ERROR] if odd else []))
        cells += [_count(state.rows.get(op, 0)) for op in counted]
        drawn.add_row(*cells)
    return drawn


def _count(rows: int) -> Text:
    return Text(f"{rows:,}", style="" if rows else "dim")


def _snapshot_cell(state: TableState) -> RenderableType:
    """A bar and how much of the table it has while the snapshot runs and its end is known, else a word."""
    if state.snapshot == "done":
        return Text("done", style="green")
    if state.snapshot != "running" or state.estimate <= 0:
        return {"running": "running", "catching up": "catching up"}.get(state.snapshot, "")
    left = state.snapshot_seconds_left
    words = f"{_percent(state)}%" + ("" if left is None else f", {span_text(left)} left")
    cell = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    bar = ProgressBar(total=state.estimate, completed=min(state.read, state.estimate), width=_BAR_WIDTH)
    cell.add_row(bar, words)
    return cell


def now_text(progress: PipelineProgress) -> str:
    """What the run does at this moment: `batch 12: read, 40,000 rows, 3.2 s`, or that it waits."""
    if progress.under_way is not None:
        batch = progress.under_way
        rows = f"{batch.rows:,} {'row' if batch.rows == 1 else 'rows'}, " if batch.rows else ""
        return f"batch {batch.number:,}: {batch.stage}, {rows}{batch.seconds:.1f} s"
    if not progress.batches:
        return "starting"
    if progress.lag_seconds == 0:
        return "everything is in the sinks; waiting for changes"
    return "between two batches"


def batch_line(batch: BatchDone, progress: PipelineProgress) -> str:
    """A batch in one line: `batch 12: 40,000 read, 3 inserts in dbo.orders; 1.2 s; snapshot of dbo.orders 33%`."""
    rows = ", ".join(_counted(batch.rows[op], op) for op in _WORDS if batch.rows.get(op))
    named = ", ".join(batch.tables[:3]) + (f" and {len(batch.tables) - 3} more" if len(batch.tables) > 3 else "")
    parts = [f"batch {batch.number:,}: {rows}{' in ' + named if named else ''}", f"{batch.seconds:.1f} s"]
    reading = {state.table: state for state in progress.tables if state.snapshot == "running" and state.estimate > 0}
    if batch.rows.get(Operation.READ):
        shown = [f"{name} {_percent(reading[name])}%" for name in batch.tables[:3] if name in reading]
        parts += [f"snapshot of {', '.join(shown)}"] if shown else []
    return "; ".join(parts)


def _counted(rows: int, op: Operation) -> str:
    """`1 insert`, `3 inserts`."""
    word = _WORDS[op]
    return f"{rows:,} {word.removesuffix('s') if rows == 1 else word}"


def _percent(state: TableState) -> int:
    # Not 100 before it is done: the estimate may be too small.
    return min(99, 100 * state.read // state.estimate)


def line(progress: PipelineProgress, *, rate: bool = True) -> str:
    sums = {op: sum(s.rows.get(op, 0) for s in progress.tables) for op in Operation}
    parts = []
    reading = [s for s in progress.tables if s.snapshot == "running"]
    if reading:
        parts.append("snapshot of " + ", ".join(f"{s.table} {snapshot_text(s)}" for s in reading[:3]))
    elif sums[Operation.READ]:
        parts.append(f"snapshot {sums[Operation.READ]:,} rows")
    parts.append(", ".join(_counted(sums[op], op) for op in (Operation.CREATE, Operation.UPDATE, Operation.DELETE)))
    if progress.messages:
        parts.append(messages_text(progress.messages))
    elif sums[Operation.ERROR]:
        parts.append(f"{sums[Operation.ERROR]:,} unreadable")
    parts.append(_foot(progress, rate=rate))
    return "; ".join(parts)


def snapshot_text(state: TableState) -> str:
    """`120,000 of about 336,776 (35%)` while it runs, the count when it is done."""
    read = _rows_read(state)
    if state.snapshot == "running" and state.estimate > 0:
        return f"{read:,} of about {state.estimate:,} ({_percent(state)}%)"
    if state.snapshot == "running":
        return f"{read:,} so far"
    if state.snapshot == "catching up":
        return f"{read:,} catching up"
    return f"{read:,} done" if state.snapshot == "done" else "-"


def messages_text(messages: MessageCounts) -> str:
    """`3 unreadable (2 x ..., 1 x ...), 1 in dead letters, 2 left out; 5 are not events`."""
    parts = []
    if messages.unreadable:
        kept = messages.dead_letters
        where = (
            ""
            if not kept
            else ", all in dead letters"
            if kept == messages.unreadable
            else f", {kept:,} in dead letters"
        )
        if messages.left_out:
            where += f", {messages.left_out:,} left out"
        parts.append(f"{messages.unreadable:,} unreadable ({messages.reasons_text()}){where}")
    if messages.no_event:
        parts.append(f"{messages.no_event:,} {'is not an event' if messages.no_event == 1 else 'are not events'}")
    if messages.shortened:
        changes = "1 change" if messages.shortened == 1 else f"{messages.shortened:,} changes"
        parts.append(f"{changes} sent without large values")
    if messages.out_of_range:
        parts.append(_values_text(messages.out_of_range, "beyond what the format holds"))
    if messages.nulled:
        parts.append(_values_text(messages.nulled, "written as NULL"))
    return "; ".join(parts)


def _values_text(tables: Mapping[str, Mapping[str, int]], what: str) -> str:
    """`3 values written as NULL: 2 in dbo.t.d, 1 in dbo.u.n`."""
    count = sum(n for columns in tables.values() for n in columns.values())
    counts = [(f"{table}.{column}", n) for table, columns in tables.items() if table for column, n in columns.items()]
    where = ", ".join(f"{n:,} in {name}" for name, n in counts[:_MOST_COLUMNS])
    more = f" and {len(counts) - _MOST_COLUMNS} more columns" if len(counts) > _MOST_COLUMNS else ""
    return f"{count:,} {'value' if count == 1 else 'values'} {what}{': ' if where else ''}{where}{more}"


def health_text(health: Health | None) -> str:
    """What a user has to know of the source: that it does not capture, or may delete what is needed; else nothing."""
    if health is None:
        return ""
    parts = []
    if health.state is CaptureState.UNKNOWN:
        parts.append(health.sentence.removesuffix("."))
    elif health.state is not CaptureState.CAPTURING:
        parts.append(f"source {health.state}: {health.sentence.removesuffix('.')}")
    if health.uncaptured:
        parts.append(f"no longer captured: {', '.join(health.uncaptured)}")
    if health.lost:
        parts.append(f"needed changes of {', '.join(health.lost)} are deleted")
    elif health.at_risk:
        parts.append("clean-up may delete changes that are not in the sinks at any moment")
    elif health.headroom_is_small and health.headroom_seconds is not None:
        parts.append(f"clean-up reaches changes that are not in the sinks in {span_text(health.headroom_seconds)}")
    elif health.headroom_is_small and health.headroom_bytes is not None:
        parts.append(
            f"changes that are not in the sinks are lost after {size_text(health.headroom_bytes)} more of the log"
        )
    return "; ".join(part for part in parts if part)


def log_text(health: Health | None) -> str:
    """How much of its log the source keeps for the pipeline, and how much may follow; empty where it does not say."""
    if health is None or health.retained_bytes is None:
        return ""
    kept = f"{size_text(health.retained_bytes)} kept for the pipeline"
    if health.headroom_bytes is None:
        return f"{kept}; the server sets no bound"
    if health.headroom_bytes <= 0:
        return f"{kept}; it may be dropped at any moment"
    return f"{kept}; it is dropped after {size_text(health.headroom_bytes)} more"


def _rows_read(state: TableState) -> int:
    return max(state.read, state.rows.get(Operation.READ, 0))


def _foot(progress: PipelineProgress, *, rate: bool) -> str:
    source = health_text(progress.health)
    batches = "1 batch" if progress.batches == 1 else f"{progress.batches:,} batches"
    speed = f"{progress.rows_per_second:,.0f} rows/s; " if rate else ""
    counts = f"{speed}lag {_lag(progress)}; {batches}"
    return f"{counts}; {source}" if source else counts


def _lag(progress: PipelineProgress) -> str:
    return "unknown" if progress.lag_seconds is None else f"{progress.lag_seconds:.1f} s"
