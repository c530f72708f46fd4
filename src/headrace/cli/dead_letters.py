"""`headrace dead-letters`: what messages could not be read, and replaying them after a repair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import USER_ERROR, errors_reported
from headrace.cli.questions import DryRun, Yes, confirmed
from headrace.cli.run import Debug, session_for
from headrace.pipeline.replay import OnTrimmed, OutOfOrder

if TYPE_CHECKING:
    from headrace.pipeline.replay import DeadLetterGroup, ReplayPlan

commands = typer.Typer(
    name="dead-letters", help="List and replay messages that could not be read.", no_args_is_help=True
)

PipelineFile = Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


@commands.command("list")
def list_(pipeline: PipelineFile, as_json: AsJson = False, debug: Debug = False) -> None:
    """List a pipeline's dead letters by partition and reason. Writes nothing."""
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        groups = loaded.dead_letters(session_for([loaded], debug, short_lived=True))
        if as_json:
            out.print(loaded.hide(json.dumps({"dead_letters": [_group_json(group) for group in groups]}, indent=2)))
            return
        for line in group_lines(groups):
            out.print(loaded.hide(line))


@commands.command()
def replay(
    pipeline: PipelineFile,
    topic: Annotated[str, typer.Option(help="Replay only letters of this topic.", show_default=False)] = "",
    out_of_order: Annotated[
        OutOfOrder | None,
        typer.Option(
            help="For sinks of messages, whose consumers get old changes after newer ones. send: the changes of "
            "letters, and again the later changes of the same rows. leave-out: nothing. Without it such a sink "
            "stops the replay.",
            show_default=False,
        ),
    ] = None,
    on_trimmed: Annotated[
        OnTrimmed,
        typer.Option(
            help="What to do where Kafka no longer has all that followed a letter, so that a row which was deleted "
            "since would come back."
        ),
    ] = "fail",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read dead letters again with the format's present options, and give their changes to the sinks.

    Tables take each change at its place in the order of its partition: a row that is newer stays. The pipeline must not
    run meanwhile. Exits with 2 if the replay would stop.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        spark = session_for([loaded], debug)
        with loaded.replay(
            spark, topic=topic, out_of_order=out_of_order, on_trimmed=on_trimmed, holds=not dry_run
        ) as prepared:
            plan = prepared.plan
            if as_json and dry_run:
                out.print(loaded.hide(json.dumps(plan.to_json(), indent=2, ensure_ascii=False)))
            elif not as_json:
                for line in plan_lines(plan):
                    out.print(loaded.hide(line))
            if plan.all_stops:
                # `errors_reported` would print several sentences as one.
                if as_json and not dry_run:
                    out.print(loaded.hide(json.dumps(plan.to_json(), indent=2, ensure_ascii=False)))
                raise typer.Exit(USER_ERROR)
            if dry_run or plan.does_nothing or not confirmed(yes):
                return
            done = prepared.run()
        assert done is not None
        if as_json:
            result = {**plan.to_json(), "batch": done.batch, "replayed": done.letters}
            out.print(loaded.hide(json.dumps(result, indent=2, ensure_ascii=False)))
        else:
            out.print(f"Replayed {_letters(done.letters)}, as batch {done.batch:,} of the checkpoint.")


def group_lines(groups: Sequence[DeadLetterGroup]) -> list[str]:
    if not groups:
        return ["No dead letters."]
    lines = []
    for one in groups:
        offsets = f"offset {one.first:,}" if one.first == one.last else f"offsets {one.first:,} to {one.last:,}"
        newest = "" if one.newest is None else f", the newest of {one.newest:%Y-%m-%d %H:%M:%S} UTC"
        done = "" if not one.replayed else f"; {'all' if one.replayed == one.letters else f'{one.replayed:,}'} replayed"
        partition = f"topic {one.topic}, partition {one.partition}, {offsets}{newest}"
        lines.append(f"{_letters(one.letters)}: {partition}{done}. {one.reason}")
    waiting = sum(group.letters - group.replayed for group in groups)
    return [*lines, f"{_letters(waiting)} {'waits' if waiting == 1 else 'wait'} for a replay."]


def plan_lines(plan: ReplayPlan) -> list[str]:
    if not plan.letters:
        return [f"{plan.name}: no dead letters to replay."]
    lines = [f"{plan.name}: {_letters(plan.letters)} (checkpoint {plan.checkpoint})"]
    lines.append(f"  readable   {plan.readable:,} now")
    lines += [f"  no event   {plan.no_event:,}, settled without a change"] if plan.no_event else []
    lines += [f"  unreadable {count:,}, which stay: {reason}" for reason, count in plan.unreadable.items()]
    for table in plan.tables:
        later = f", and {table.later:,} later of the same rows" if table.later else ""
        lines.append(f"  table      {table.table}: {table.changes:,} change{'' if table.changes == 1 else 's'}{later}")
    for sink in plan.sinks:
        stop = f" STOPS. {sink.stop} {sink.remedy}".rstrip() if sink.stop else ""
        lines.append(f"  sink       {sink.sink}: {sink.effect}.{stop}")
    lines += [f"  note       {note}" for note in plan.notes]
    lines += [f"  STOPS      {stop}" for stop in plan.stops]
    return lines


def _letters(count: int) -> str:
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def _group_json(group: DeadLetterGroup) -> dict[str, object]:
    return {
        "topic": group.topic,
        "partition": group.partition,
        "reason": group.reason,
        "letters": group.letters,
        "first_offset": group.first,
        "last_offset": group.last,
        "newest": None if group.newest is None else group.newest.isoformat(),
        "replayed": group.replayed,
    }
