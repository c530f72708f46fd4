"""What SQL Server's statements are like."""

from __future__ import annotations

import ast
import re

from headrace.changes import Column, TableId, TableSchema
from headrace.sources.change_tables.captured_table import CapturedTable, CaptureInstance
from headrace.sources.sqlserver.types import NativeType

_SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|MERGE|EXEC|EXECUTE|SET|BEGIN|COMMIT|ROLLBACK|SAVE|IF|DECLARE|CREATE|ALTER|DROP"
    r"|WITH|USE|GRANT|DENY|TRUNCATE)\s.*|.*\b(FROM|WHERE|JOIN|ORDER BY|GROUP BY|OFFSET|VALUES|WITH \(|UNION)\s.*",
    re.DOTALL,
)


def texts_of(tree):
    """The texts of a module but for docstrings, with a word where a value is put in."""
    docstrings = {
        id(node.body[i].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for i in range(len(node.body))
        if isinstance(node.body[i], ast.Expr)
    }
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "x" for p in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inside:
            yield node.lineno, node.value


def table_called(name):
    natives = (NativeType("int", 4, 10, 0), NativeType("nvarchar", 20, 0, 0), NativeType("datetime2", 8, 27, 7))
    names = (f"{name} 1", f"{name} 2", f"{name} 3")
    columns = tuple(
        Column(column, position, native.logical, nullable=position == 2)
        for position, (column, native) in enumerate(zip(names, natives, strict=True), 1)
    )
    schema = TableSchema(TableId("d", f"s {name}", name), columns, names[:2])
    ordinals = tuple((column, position) for position, column in enumerate(names, 1))
    return CapturedTable(schema, natives, names[:2], instance=CaptureInstance(f"i {name}", None, ordinals, True, 7))
