"""Reads LogMiner's SQL_REDO: one statement's text in, one row change or one piece of a large value out.

    from headrace.sources.oracle.redo import parse

    row = parse('''update "SHOP"."ORDERS" set "STATE" = 'paid' where "ID" = '17' and "STATE" = 'open';''')
    row.op, row.schema, row.table   # 'update', 'SHOP', 'ORDERS'
    row.before                      # {'ID': '17', 'STATE': 'open'}
    row.after                       # {'ID': '17', 'STATE': 'paid'}

Pure Python on purpose: it runs in Spark's executors, in a notebook, anywhere. It opens nothing and keeps nothing but
a cache of statement shapes.
"""

from headrace.sources.oracle.redo.parser import parse, parse_many
from headrace.sources.oracle.redo.reader import unistr_text
from headrace.sources.oracle.redo.row import RedoPiece, RedoRow, RedoShape, RedoSyntaxError

__all__ = ["RedoPiece", "RedoRow", "RedoShape", "RedoSyntaxError", "parse", "parse_many", "unistr_text"]
