"""Rule: the tutorial on PostgreSQL is true: its statements, files and commands are typed as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgresql import needs_postgres, postgres

from headrace.testing.waiting import PATIENCE
from headrace_emulators.postgresql.server import PostgresServer

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "postgresql.md"
BLOCK = re.compile(r"^```(sql|yaml|sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
KINDS = ["sql", "sql", "yaml", "sh", "sql", "sh", "python", "sql"]


def typed(commands: str, folder: Path) -> None:
    """Run commands in a shell in which `headrace` is the one that is tested."""
    (folder / "bin").mkdir(exist_ok=True)
    command = folder / "bin" / "headrace"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m headrace "$@"\n')
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


def run(kind: str, text: str, server: PostgresServer, folder: Path, spark: Any) -> None:
    if kind == "sql":
        server.run(text, database="postgres")
    elif kind == "yaml":
        (folder / "pipeline.yaml").write_text(
            text.replace("hostname: localhost", f"hostname: 127.0.0.1, port: {server.port}")
        )
    elif kind == "sh":
        typed(text, folder)
    else:
        exec(compile(text, str(PAGE), "exec"), {"spark": spark})


@needs_postgres
@pytest.mark.slow
def test_the_tutorial_is_true_as_it_stands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == KINDS
    exported = ""
    with postgres() as server:
        for kind, text in blocks:
            if kind == "sh":
                # One shell, as a reader has it.
                text = exported + text
                exported = "".join(line for line in text.splitlines(keepends=True) if line.startswith("export "))
            run(kind, text, server, tmp_path, spark)
        assert server.run("select count(*) from pg_replication_slots") == "0\n"
