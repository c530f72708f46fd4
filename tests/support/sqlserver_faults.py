"""Batches of SQL Server in which something fails."""

from __future__ import annotations

from tests.faults.faulty_driver import DriverError
from tests.support.sqlserver_runs import NOW, Run, create

from headrace.sources.base import Limit

CUT = DriverError("Communication link failure", "TCP Provider: Error code 0x2746")


ROWS = 10


def run_before(database, kind, **options):
    """A run whose next batch is of one kind: several driver batches of one table."""
    create(database, "t", "id int not null primary key, v int", [(n, n) for n in range(ROWS)])
    run = Run(database, provide_transaction_metadata=str(kind == "transactions").lower(), **options)
    if kind != "snapshot":
        run.all()
        database.execute("UPDATE dbo.t SET v = v + 1")
        database.capture()
    return run


def the_slice(run, kind):
    """The slice of the next batch that reads the table's rows."""
    end = run.source.advance(run.offset, Limit(), NOW)
    [piece] = [piece for piece in run.source.plan(run.offset, end) if piece.kind == kind]
    return piece
