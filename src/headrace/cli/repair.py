"""`headrace repair`: one table is read again, rewound or skipped, while the others go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.questions import DryRun, Yes, confirmed
from headrace.cli.run import Debug, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipeline import Pipeline
    from headrace.pipeline.orphans import Orphans
    from headrace.pipeline.repair import Repair

commands = typer.Typer(
    name="repair",
    help="Read single tables again, rewind or skip them, while the others go on. Shows first what it will do.",
    no_args_is_help=True,
)

PipelineFile = Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)]
Tables = Annotated[
    list[str],
    typer.Argument(help="Names or regular expressions of schema.table.", show_default=False),
]
TablesOrTopics = Annotated[
    list[str],
    typer.Argument(
        help="Names or regular expressions of schema.table; for a pipeline that reads Kafka, topics or partitions "
        "(topic:0).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]


@commands.command()
def reread(
    pipeline: PipelineFile,
    tables: Tables,
    incremental: Annotated[
        bool,
        typer.Option(
            "--incremental",
            help="Read beside the table's changes, which do not wait.",
        ),
    ] = False,
    filter: Annotated[
        str,
        typer.Option(help="With --incremental: read only rows that match this SQL predicate.", show_default=False),
    ] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Read the rows of tables again. Their changes wait meanwhile; those of other tables go on.

    Rows that the source no longer has are removed from tables that are kept equal to it, unless there is a filter.
    """

    def made(loaded: Pipeline, spark: SparkSession | None) -> Repair:
        return loaded.reread(tables, incremental=incremental, filter=filter, spark=spark)

    _show_and_do(pipeline, made, yes=yes, dry_run=dry_run, as_json=as_json, debug=debug)


@commands.command()
def rewind(
    pipeline: PipelineFile,
    tables: TablesOrTopics,
    to: Annotated[
        str,
        typer.Option(
            help="The place after which changes come again, as the source's tools spell it, or a time with its zone "
            "(2024-05-01T12:00:00Z). Of Kafka an offset, a time, or earliest.",
            show_default=False,
        ),
    ],
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Deliver the changes of tables again since a place or a time, while the other tables go on.

    The source must still hold them. Targets that are kept equal to it take what they lack; topics and files get the
    changes again.
    """

    def made(loaded: Pipeline, spark: SparkSession | None) -> Repair:
        return loaded.rewind(tables, to, spark=spark)

    _show_and_do(pipeline, made, yes=yes, dry_run=dry_run, as_json=as_json, debug=debug)


@commands.command()
def skip(
    pipeline: PipelineFile,
    tables: TablesOrTopics,
    to: Annotated[
        str,
        typer.Option(
            help="The place up to which changes are left out, as the source's tools spell it, a time with its zone, "
            "or now.",
            show_default=False,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Lose these changes.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Leave out changes of tables up to a place, or up to now. This loses them on purpose.

    It is recorded: headrace status shows it and ends with 1 until the table is read again. Needs --yes.
    """

    def made(loaded: Pipeline, spark: SparkSession | None) -> Repair:
        return loaded.skip(tables, to, spark=spark)

    _show_and_do(pipeline, made, yes=yes, dry_run=dry_run, as_json=as_json, debug=debug, loses=True)


@commands.command()
def orphans(
    pipeline: PipelineFile,
    older_than: Annotated[
        int, typer.Option(help="Only files that were written more than so many hours ago; 24 or more.")
    ] = 24,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Delete data files in folders of Delta and Iceberg tables that no version of them names.

    Killed tasks leave such files. Only files that Headrace wrote are deleted, and only while the pipeline is stopped.
    """

    def made(loaded: Pipeline, spark: SparkSession | None) -> Orphans:
        assert spark is not None
        return loaded.orphans(spark, hours=older_than)

    _show_and_do(pipeline, made, yes=yes, dry_run=dry_run, as_json=as_json, debug=debug, needs_spark=True)


def _show_and_do(
    pipeline: Path,
    make: Callable[[Pipeline, SparkSession | None], Repair | Orphans],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    debug: bool,
    loses: bool = False,
    needs_spark: bool = False,
) -> None:
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug) as shown:
        from headrace.errors import OptionError
        from headrace.pipeline import load_pipeline

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        needs_spark = needs_spark or loaded.repairs_with_spark
        spark = session_for([loaded], debug, short_lived=True) if needs_spark else None
        repair = make(loaded, spark)
        if not as_json:
            for line in lines(repair):
                out.print(loaded.hide(line))
        done: list[str] = []
        if repair.parts and not dry_run:
            if loses and not yes:
                raise OptionError("Nothing was done, because this loses changes.", remedy="Say --yes to lose them.")
            if not confirmed(yes):
                return
            done = list(repair.do())
        if as_json:
            document = {**repair.to_json(), "done": done}
            out.print(loaded.hide(json.dumps(document, indent=2, ensure_ascii=False)))
            return
        for sentence in done:
            out.print(loaded.hide(sentence))


def lines(repair: Repair | Orphans) -> list[str]:
    from headrace.pipeline.orphans import Orphans

    if isinstance(repair, Orphans):
        return _orphan_lines(repair)
    nouns = {"reread": "row", "rewind": "change", "skip": "change"}
    texts = [f"{repair.pipeline}: {repair.kind} (checkpoint {repair.checkpoint})"]
    for part in repair.parts:
        noun = nouns[repair.kind]
        count = "" if part.count is None else f", about {part.count:,} {noun}{'' if part.count == 1 else 's'}"
        texts.append(f"  {part.name}: {part.does}{count}")
        texts += [f"    {sink}: {effect}" for sink, effect in part.sinks]
    return [*texts, *(f"  note  {note}" for note in repair.notes)]


def _orphan_lines(orphans: Orphans) -> list[str]:
    texts = [f"{orphans.pipeline}: files of tables that no version names (checkpoint {orphans.checkpoint})"]
    for part in orphans.parts:
        files = f"{len(part.files):,} {'file' if len(part.files) == 1 else 'files'}"
        texts.append(f"  {part.name}: {files}, {part.size:,} bytes")
        texts += [f"    {file.modified:%Y-%m-%d %H:%M}  {file.size:>12,}  {file.path}" for file in part.files]
    return texts if orphans.parts else [*texts, f"  None that is older than {orphans.hours} hours."]
