"""`headrace plan`: what a run would do from the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import USER_ERROR, errors_reported
from headrace.cli.run import Debug, session_for

if TYPE_CHECKING:
    from headrace.pipeline.plan import PipelinePlan, SinkPlan


def plan(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Show what a run would do: tables, snapshots, positions and changes of the targets. Writes nothing.

    Exits with 2 if the run would stop.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.observe.checkpoint import local_path
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        wanted = loaded.looks_with_spark or local_path(loaded.checkpoint) is None
        result = loaded.plan(spark=session_for([loaded], debug, short_lived=True) if wanted else None)
        if as_json:
            out.print(loaded.hide(json.dumps(result.to_json(), indent=2, ensure_ascii=False)))
        else:
            for line in lines(result):
                out.print(loaded.hide(line))
        stops = result.stops
        # `errors_reported` would print several sentences as one.
        if stops:
            raise typer.Exit(USER_ERROR)


def lines(plan: PipelinePlan) -> list[str]:
    from headrace.pipeline.check import summary, table_text

    begun = "has not been started yet" if plan.batch is None else f"continues after batch {plan.batch:,}"
    texts = [f"{plan.name}: {begun} (checkpoint {plan.checkpoint})", f"  source  {plan.source}; {summary(plan)}"]
    for topic, ends in sorted((plan.begin or {}).items()):
        at = ", ".join(f"partition {partition} from {end:,}" for partition, end in sorted(ends.items()))
        texts.append(f"  topic   {topic}: {at}")
    texts += [f"  sink    {sink}" for sink in plan.sinks]
    texts += [f"  encode  {plan.encoding}"] if plan.encoding else []
    texts += [f"  note    {sentence}" for sentence in (plan.rewrites, *plan.unsaid) if sentence]
    for table in plan.tables:
        texts.append(f"  table   {table.table}: {table_text(table, targets=False)}")
        texts += [
            f"            {_target(target)}"
            for target in table.targets
            if target.place or target.stop or target.left_out
        ]
    texts += [f"  note    {sentence}" for sentence in (*plan.unmatched, *plan.cascades, *plan.lacking)]
    texts += [f"  lost    {table} is no longer captured" for table in plan.uncaptured]
    texts += [f"  gone    {table} was captured until now and would no longer be" for table in plan.gone]
    stops = len(plan.stops)
    if stops:
        texts.append(f"The run would stop at {stops} target{'' if stops == 1 else 's'}.")
    return texts


def _target(target: SinkPlan) -> str:
    if target.stop:
        return f"{target.sink}: STOPS. {target.stop} {target.remedy}".rstrip()
    if target.left_out:
        return f"{target.sink}: left out by its routes"
    state = {None: "", True: ", exists", False: ", would be created"}[target.exists]
    changes = f": {', '.join(target.changes)}" if target.changes else ""
    way = f"; small batches go {target.way}" if target.way else ""
    load = f"; its rows go {target.load}" if target.load else ""
    return f"{target.sink}: {target.place}{state}{changes}{load}{way}"
