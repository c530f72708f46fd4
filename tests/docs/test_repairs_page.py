"""Rule: the page on repairs is true: its commands on a database run as they stand, and the others are commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from tests.support.status_shop import Shop
from typer.testing import CliRunner

from headrace.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "repairs.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = [
    (kind, line.removesuffix(" || true"))
    for kind, block in BLOCK.findall(PAGE)
    for line in block.splitlines()
    if line.startswith("headrace ")
]


def test_commands_on_a_database_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path)
    shop.options["signal_path"] = "signals"
    shop.database.execute("CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY)")
    shop.database.execute("CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY)")
    for table in ("orders", "customers"):
        shop.database.execute(
            f"EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='{table}', @role_name=NULL"
        )
    shop.database.capture()
    for _ in range(8):
        shop.batch()
    shop.database.execute("INSERT INTO dbo.orders VALUES (1)")
    shop.database.capture()
    shop.file()
    monkeypatch.chdir(tmp_path)
    ran = [line for kind, line in COMMANDS if kind == "sh"]
    assert len(ran) == 8
    for line in ran:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        # The places of a rewind are those of another server.
        expected = 2 if " rewind " in line else 0
        assert done.exit_code == expected, (line, done.output)
        assert "Usage" not in done.output
    shop.database.close()


@pytest.mark.parametrize("line", [line for _, line in COMMANDS])
def test_every_command_takes_its_arguments(line: str) -> None:
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while isinstance(command, typer.core.TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context("headrace", words)
