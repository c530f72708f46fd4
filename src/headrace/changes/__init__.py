"""The vocabulary: what a change, a table and a value are. No driver, no I/O, no Spark session.

Everything in the middle of Headrace is a DataFrame of change rows (`row`), whose images hold canonical text (`types`)
that a `TableSchema` (`table`) turns into typed columns and back, in an order that a position (`position`) gives.
"""

from headrace.changes.position import Position
from headrace.changes.row import CHANGE_ROW_DDL, Operation, arrow_schema
from headrace.changes.table import Column, TableId, TableSchema
from headrace.changes.types import LogicalType

__all__ = [
    "CHANGE_ROW_DDL",
    "Column",
    "LogicalType",
    "Operation",
    "Position",
    "TableId",
    "TableSchema",
    "arrow_schema",
]
