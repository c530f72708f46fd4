"""`headrace verify`: whether the tables that a pipeline keeps are equal to their source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from headrace.cli.failure import errors_reported
from headrace.cli.run import Debug, session_for

DIFFERENT = 1


def verify(
    pipeline: Annotated[Path, typer.Argument(help="The pipeline's YAML file.", show_default=False)],
    rows: Annotated[int, typer.Option("--rows", help="How many differing rows of each table to print.", min=0)] = 20,
    debug: Debug = False,
) -> None:
    """Compare the tables of a pipeline's sinks with its source, row by row. Writes nothing.

    Exits with 0 if all are equal, with 1 if a row differs or a column is missing. Run it when the pipeline has caught
    up. PostgreSQL, MySQL and MariaDB count and print the rows themselves, so that a defect of a snapshot shows, too.
    """
    out = Console(highlight=False, markup=False, soft_wrap=True)
    equal = True
    with errors_reported(debug) as shown:
        from headrace.pipeline import load_pipeline
        from headrace.pipeline.verify import LeftOut

        loaded = load_pipeline(pipeline)
        shown.hide = loaded.hide
        loaded.check()
        for line in loaded.verify(session_for([loaded], debug), most=rows):
            if isinstance(line, LeftOut):
                equal = False
                names = ", ".join(f"'{name}'" for name in line.columns)
                out.print(
                    f"{line.table.path}: the source has {names}, which no sink gets. Name them in "
                    "'column_exclude_list' if they should be left out."
                )
                continue
            result = line.comparison
            equal = equal and line.equal
            out.print(
                f"{line.table.path} in {line.sink}: {_rows(result.expected)} in the source, {result.actual:,} in the "
                + "target; "
                + ("equal" if result.equal else f"{result.differing_rows} differ")
            )
            if line.lacking:
                names = ", ".join(f"'{name}'" for name in line.lacking)
                out.print(f"  lacks {names}: let the pipeline catch up, or leave it out with 'except_column_list'")
            for one in result.differences:
                columns = f" ({', '.join(one.columns)})" if one.columns else ""
                out.print(f"  {one.kind} {one.key}{columns}")
    if not equal:
        raise typer.Exit(DIFFERENT)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
