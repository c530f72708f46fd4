"""`headrace demo`."""

from __future__ import annotations

import typer


def demo() -> None:
    """Demo."""
    raise typer.Exit(2)
