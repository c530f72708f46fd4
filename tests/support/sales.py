"""A database of the kind that pages speak of, emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import headrace
from headrace.testing.waiting import PATIENCE
from headrace_emulators.sqlserver import EmulatedServer

ORDERS = "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, total decimal(9,2), year int)"
ITEMS = "CREATE TABLE dbo.items (order_id int, line int, piece nvarchar(20), PRIMARY KEY (order_id, line))"
CUSTOMERS = "CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, credit decimal(9,2))"


class Sales:
    """An emulated database with three captured tables of a row each, and pipelines that read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = EmulatedServer(folder / "server").create_database("sales")
        for name, columns in (("orders", ORDERS), ("items", ITEMS), ("customers", CUSTOMERS)):
            self.database.execute(columns)
            self.database.execute(
                f"EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='{name}', @role_name=NULL"
            )
        self.database.execute("INSERT INTO dbo.orders VALUES (1, 9.50, 2026)")
        self.database.execute("INSERT INTO dbo.items VALUES (1, 1, N'rose')")
        self.database.execute("INSERT INTO dbo.customers VALUES (1, 99.90)")
        self.database.capture()

    @property
    def source(self) -> dict[str, str]:
        return {"driver": "emulator", "hostname": str(self.folder / "server"), "database": "sales"}

    def pipeline(self, tables: str = "dbo.*") -> Path:
        """A pipeline into Delta tables."""
        sections = {
            "source": {"type": "sqlserver", **self.source, "tables": tables},
            "sinks": [{"type": "delta", "path": "lake"}],
            "pipeline": {"name": "shop", "checkpoint": "checkpoint", "trigger": "100ms"},
        }
        file = self.folder / "pipeline.yaml"
        file.write_text(yaml.safe_dump(sections), encoding="utf-8")
        return file

    def run(self, spark: Any, tables: str = "dbo.*") -> Path:
        """One run to the end; its checkpoint."""
        assert headrace.load_pipeline(self.pipeline(tables)).start(spark, once=True).wait(PATIENCE)
        return self.folder / "checkpoint"

    def add_note_to_orders(self) -> None:
        """A column that the second capture instance of the table has."""
        self.database.execute("ALTER TABLE dbo.orders ADD note nvarchar(20)")
        self.database.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema='dbo', @source_name='orders', @role_name=NULL, "
            "@capture_instance='dbo_orders_2'"
        )
        self.database.capture()
