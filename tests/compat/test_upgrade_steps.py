"""Rule: the steps of docs/upgrades.md are true as they stand, typed on the pipeline that 0.1.0 left in the middle of a
batch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.compat.databases import KeptSqlServer
from tests.compat.packing import unpack
from tests.compat.pipelines import SINKS, kept, shop_pipeline
from tests.support.typed_commands import typed

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[2] / "docs/upgrades.md"
STEPS = PAGE.read_text(encoding="utf-8").split("## Go back")[0]
TABLES = ("dbo.customers", "dbo.log")


@pytest.mark.jvm
@pytest.mark.slow
def test_the_steps_of_an_upgrade_go_on_without_a_snapshot_and_the_tables_equal_the_source(tmp_path: Path) -> None:
    unpack(kept("0.1.0", "shop"), tmp_path)
    # What needs a catalog, and what `verify` does not compare, is in tests/compat.
    shop_pipeline(tmp_path, [sink for sink in SINKS if sink["type"] != "iceberg" and "stored_as_scd_type" not in sink])
    before = set((tmp_path / "messages").glob("batch=*"))
    said: dict[str, str] = {}
    database = KeptSqlServer(tmp_path / "server")
    with database.capturing():
        for block in re.findall(r"^ *```sh\n(.*?)```", STEPS, re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                command = line.split("#")[0].strip()
                if command and not command.startswith("pip "):
                    said[command] = typed(as_a_test_can(command), tmp_path)
    database.emulated.close()
    assert [command.split()[:2] for command in said] == [
        ["headrace", "status"],
        ["cp", "-a"],
        ["headrace", "--version"],
        ["headrace", "check"],
        ["headrace", "plan"],
        ["headrace", "run"],
        ["headrace", "verify"],
    ]
    assert said["headrace plan pipeline.yaml"].count("no snapshot") == len(TABLES)
    assert "The sinks have everything that the source had." in said["headrace run pipeline.yaml"]
    after = set((tmp_path / "messages").glob("batch=*")) - before
    assert operations(after) and "r" not in operations(after)


def as_a_test_can(command: str) -> str:
    """A command that ends, and that may find what was kept long ago too far behind."""
    if command == "headrace status pipeline.yaml":
        return f"{command} || test $? = 1"
    return command.replace(" run pipeline.yaml", " run pipeline.yaml --once")


def operations(batches: set[Path]) -> set[str]:
    values = [json.loads(line)["value"] for b in batches for file in b.glob("part-*") for line in file.open()]
    return {str(json.loads(value)["op"]) for value in values if value is not None}
