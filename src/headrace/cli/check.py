"""`headrace check`: whether a pipeline can run, and what to do if it can't."""

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
            help="How far to check; each level includes the ones before it. static: the file. connect: source and "
            "sinks. privileges: the logins' permissions. plan: what a run would capture."
        ),
    ] = Level.PLAN,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Check a pipeline without running it. Writes nothing. Exits with 2 if something is wrong."""
    out = Console(highlight=False, markup=False, soft_wrap=True)
    with errors_reported(debug):
        from headrace.pipeline.check import check_file

        outcome = check_file(pipeline, level)
        if as_json:
            out.print(json.dumps(outcome.to_json(), indent=2, ensure_ascii=False))
        else:
            for line in lines(outcome):
                out.print(line)
    if not outcome.passed:
        raise typer.Exit(USER_ERROR)


def lines(check: Check) -> list[str]:
    """A check as text for people: one line per finding."""
    problems = sum(1 for finding in check.findings if finding.verdict == "wrong")
    if check.passed:
        end = f"No problems up to level {check.reached}."
    else:
        end = f"{problems} problem{'' if problems == 1 else 's'} at level {check.reached}."
        if check.reached is not check.level:
            end += " Later levels were not checked."
    return [*(_line(finding) for finding in check.findings), end]


def _line(finding: Finding) -> str:
    text = f"{finding.sentence} {finding.remedy}".strip()
    about = "" if finding.subject == "file" else f"{finding.subject}: "
    return f"{finding.verdict:5} {finding.level:10} {about}{text}"
