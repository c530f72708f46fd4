"""`headrace status`: where a pipeline stands, running or not, for people and for monitoring."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug, session_for

if TYPE_CHECKING:
    from headrace.observe.history import KeptFigures
    from headrace.observe.status import DatabaseStatus, PipelineStatus, TableStatus

NOT_FINE = 1
_LEFT_OUT = (
    "no sink has the messages or changes that could not be read, so tables may lack changes. Once you have dealt with "
    "them, remove headrace-message-counts.json from the checkpoint's folder."
)


def status(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    no_source: Annotated[
        bool, typer.Option("--no-source", help="Read the checkpoint only; don't connect to the database.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Show where a pipeline stands.

    Exits with 1 if its source does not capture or has deleted needed changes, if messages were left out because they
    could not be read, if changes were skipped by a repair, if a table is parked, or if rows may have changed without a
    change in the log and are not read again.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.observe.checkpoint import local_path
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        spark = session_for([loaded], debug, short_lived=True) if local_path(loaded.checkpoint) is None else None
        result = loaded.status(spark=spark, ask_source=not no_source)
        if as_json:
            out.print(loaded.hide(json.dumps(result.to_json(), indent=2, ensure_ascii=False)))
        else:
            for line in lines(result, dt.datetime.now(dt.UTC)):
                out.print(loaded.hide(line))
        if not result.is_fine:
            raise typer.Exit(NOT_FINE)


def lines(status: PipelineStatus, now: dt.datetime) -> list[str]:
    """A status as text for people; `now` is the current time."""
    texts = [f"{status.name}: {_run(status)}"]
    for topic, ends in sorted(status.topics.items()):
        texts.append(f"  topic {topic}: {', '.join(f'partition {p} up to {end:,}' for p, end in sorted(ends.items()))}")
    for one in status.skipped:
        offsets = f"topic {one.topic}, partition {one.partition}, offsets {one.first:,} to {one.upto - 1:,}"
        texts.append(f"  skipped    {offsets}, by a repair {_time(one.at, now)}")
    if status.messages:
        from headrace.observe.live import messages_text

        texts.append(f"  messages   {messages_text(status.messages)}")
        if status.messages.left_out:
            texts.append(f"  left out   {_LEFT_OUT}")
    if status.run is not None:
        texts += [f"  {word:10} {text}" for word, text in _of_run(status.run, now)]
    several = len(status.databases) > 1
    for database in status.databases:
        if several:
            texts.append(f"database {database.name}")
        texts += [f"  {word:10} {text}" for word, text in _facts(database, now)]
        texts += _tables(database.tables, now)
        texts += [f"  requested  {one.table}: {one.state}, {_chunks(one.chunks)} read" for one in database.ad_hoc]
    return texts


def _run(status: PipelineStatus) -> str:
    if status.running:
        host = f" on {status.host}" if status.host else ""
        state = f"runs (process {status.process}{host})" if status.process else "runs"
    else:
        state = (
            "is not running" if status.running is False else "may be running (its checkpoint is not on this machine)"
        )
    if status.batch is None:
        never = not status.running and status.run is None
        return "has not been started yet" if never else f"{state}, no batch is finished yet"
    return f"{state}; batch {status.batch:,} is in all sinks"


def _of_run(run: KeptFigures, now: dt.datetime) -> list[tuple[str, str]]:
    """What the run that works, or the last one, says of itself."""
    from headrace.sources.health import span_text

    figures = run.figures
    as_of = dt.datetime.fromtimestamp(run.time, dt.UTC)
    counts = f"{figures['rows']:,} rows in {_batches(figures['batches'])}, {figures['rows_per_second']:,.0f} rows/s"
    facts = [("run", f"{counts}; as of {_time(as_of, now)}")]
    delays = figures["delays"]
    if delays is not None:
        quantiles = ", ".join(f"{name} {_seconds(delays[name])}" for name in ("p50", "p90", "p99"))
        facts.append(("delay", f"{quantiles}; last {_batches(delays['batches'])}, each by its oldest change"))
    recent = figures["recent_batches"]
    if recent:
        names = list(dict.fromkeys(name for batch in recent for name in batch["stages"]))
        means = {name: sum(batch["stages"].get(name, 0.0) for batch in recent) / len(recent) for name in names}
        stages = ", ".join(f"{name} {_seconds(mean)}" for name, mean in means.items())
        facts.append(("batch", f"{_seconds(sum(means.values()))} on average: {stages}"))
    for trouble in figures["troubles"]:
        ago = span_text(now.timestamp() - trouble["time"])
        times = f", {trouble['times']:,} times" if trouble["times"] > 1 else ""
        what = f"{trouble['sentence']} {trouble['remedy']}".strip()
        facts.append(("error" if trouble["fatal"] else "warning", f"{what} ({ago} ago{times})"))
    return facts


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _seconds(seconds: float) -> str:
    from headrace.sources.health import span_text

    return f"{seconds:.1f} s" if seconds < 10 else span_text(seconds)


def _facts(database: DatabaseStatus, now: dt.datetime) -> list[tuple[str, str]]:
    from headrace.observe.live import log_text
    from headrace.sources.health import span_text

    facts = []
    if database.position:
        committed = "" if database.commit_time is None else f", committed {_time(database.commit_time, now)}"
        facts.append(("position", f"{database.position}{committed}"))
        lag = "unknown" if database.lag_seconds is None else span_text(database.lag_seconds)
        facts.append(("lag", lag))
    health = database.health
    if health is None:
        facts.append(("source", "not queried"))
        return facts
    facts.append(("source", f"{health.state}. {health.sentence} {health.remedy}".strip()))
    if health.lost:
        facts.append(("lost", f"needed changes of {', '.join(health.lost)} are deleted in the source."))
    if health.retention_seconds is not None:
        kept = f"changes are kept for {span_text(health.retention_seconds)}"
        if health.headroom_seconds is None or health.lost:
            left = ""
        elif health.headroom_seconds <= 0:
            left = "; some that are not in the sinks may be deleted at any moment"
        elif health.waiting_since is None:
            left = "; none is waiting"
        else:
            left = f"; the oldest that is not in the sinks for {span_text(health.headroom_seconds)} more"
        facts.append(("retention", kept + left))
    if health.log_used_bytes is not None:
        facts.append(("log", f"{health.log_used_bytes / 2**20:,.0f} MB in use; it grows while nothing is captured"))
    if kept_log := log_text(health):
        facts.append(("log", kept_log))
    facts += [("not seen", part) for part in health.not_seen]
    return facts


def _tables(tables: tuple[TableStatus, ...], now: dt.datetime) -> list[str]:
    width = max((len(table.table) for table in tables), default=0)
    return [f"  table      {table.table:{width}}  {_table(table, now)}" for table in tables]


def _table(table: TableStatus, now: dt.datetime) -> str:
    if table.parked is not None:
        return f"parked since batch {table.parked.batch:,}, {_time(table.parked.at, now)}: {table.parked.text}"
    if not table.captured:
        return "no longer captured: its changes are missing. Enable its capture again, or remove it from the list"
    lost = "; changes of it were lost" if table.lost else ""
    if table.skipped is not None:
        after, upto = table.skipped
        lost += f"; a repair skipped its changes after {after} up to {upto}: read it again"
    if table.unequal is not None:
        position, since = table.unequal
        when = f"{_time(since, now)}, position {position}" if since is not None else f"position {position}"
        mended = "it is read again" if table.read_again else f"headrace repair reread <pipeline> {table.table}"
        lost += f"; not equal since {when}, because a change of structure may have changed rows: {mended}"
    rows = f" of a table of about {table.estimate:,} rows" if table.estimate >= 0 else ""
    if table.snapshot == "running":
        return f"in its snapshot: {_chunks(table.chunks)}{rows} read{lost}"
    if table.snapshot:
        return f"snapshot complete, catching up{lost}"
    until = "not known yet" if table.complete_until is None else f"until {_time(table.complete_until, now)}"
    return f"complete {until}{lost}"


def _chunks(count: int) -> str:
    return f"{count:,} chunk{'' if count == 1 else 's'}"


def _time(time: dt.datetime, now: dt.datetime) -> str:
    from headrace.sources.health import span_text

    shown = time.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{shown} ({span_text((now - time).total_seconds())} ago)"
