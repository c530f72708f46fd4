"""`headrace check`: whether a pipeline can run, and what to do where it can't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from headrace.cli.failure import USER_ERROR, errors_reported
from headrace.cli.run import Debug
from headrace.pipeline.check import Level

if TYPE_CHECKING:
    from headrace.pipeline.check import Check, Finding


def check(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    level: Annotated[
        Level,
        typer.Option(
            help="How far to look; each level includes those before it. static: the file. connect: source and sinks. "
            "privileges: what the login may do. plan: what would be captured."
        ),
    ] = Level.PLAN,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Check a pipeline without running it. Ends with 2 when something is wrong; nothing is written."""
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug):
        from headrace.pipeline.check import check_file

        found = check_file(pipeline, level)
        if as_json:
            out.print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        else:
            for line in lines(found):
                out.print(line)
    if not found.passed:
        raise typer.Exit(USER_ERROR)


def lines(check: Check) -> list[str]:
    """A check as a person reads it: one line per finding."""
    wrong = sum(1 for finding in check.findings if finding.verdict == "wrong")
    if check.passed:
        end = f"Nothing is wrong up to level {check.reached}."
    else:
        things = "One thing is" if wrong == 1 else f"{wrong} things are"
        end = f"{things} wrong at level {check.reached}."
        if check.reached is not check.level:
            end += " Later levels were not looked at."
    return [*(_line(finding) for finding in check.findings), end]


def _line(finding: Finding) -> str:
    said = f"{finding.sentence} {finding.remedy}".strip()
    about = "" if finding.subject == "file" else f"{finding.subject}: "
    return f"{finding.verdict:5} {finding.level:10} {about}{said}"
