"""Commands of the documentation, typed as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import typer

from headrace.cli.app import app
from headrace.testing.waiting import PATIENCE


def typed(commands: str, folder: Path) -> str:
    """Run commands in a shell in which `headrace` and `python` are those that are tested; what they printed."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, called in {"headrace": "-m headrace", "python": ""}.items():
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} {called} "$@"\n')
        command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
    }
    done = subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


WrongUse: type[Exception] = typer.BadParameter.__bases__[0]
"""What a command says of words that it does not take."""


def parse(words: Sequence[str]) -> None:
    """Read the words behind `headrace` as the program does, without doing anything.

    Raises:
        WrongUse: there is no such command or option, or an argument is missing.
    """
    command, rest = typer.main.get_command(app), list(words)
    brought = {entry.name for entry in entry_points(group="headrace.commands")}
    while isinstance(command, typer.core.TyperGroup) and rest and not rest[0].startswith("-"):
        if rest[0] in brought:
            return
        _, command, rest = command.resolve_command(typer.Context(command), rest)
    # The version is printed while it is read.
    if rest != ["--version"]:
        command.make_context("headrace", rest)
