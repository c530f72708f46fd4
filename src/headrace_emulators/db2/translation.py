"""SELECT, INSERT, UPDATE and DELETE of Db2 as SQLite runs them: what is not listed here is refused, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from headrace_emulators.db2.catalog import Column, Table, quoted
from headrace_emulators.db2.errors import not_emulated, null_refused, syntax_error, undefined, unknown_column
from headrace_emulators.db2.syntax import parse
from headrace_emulators.db2.types import Db2Type, parse_type

Find = Callable[[str, str], Table | None]
Output = tuple[str, Db2Type]
INTEGER, BIGINT, DOUBLE, BOOLEAN = Db2Type("INTEGER"), Db2Type("BIGINT"), Db2Type("DOUBLE"), Db2Type("BOOLEAN")
TIMESTAMP, VARCHAR, DATE = Db2Type("TIMESTAMP", 0, 6), Db2Type("VARCHAR", 32672), Db2Type("DATE")
_COMPARISONS = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_FUNCTIONS: dict[str, tuple[str, Db2Type, int]] = {
    "DB2_NOW": ("db2_now()", TIMESTAMP, 0),
    "DB2_MINUTE_BEFORE": ("db2_minute_before({0})", TIMESTAMP, 1),
    "DB2_TODAY": ("db2_today()", DATE, 0),
    "DB2_TIMEZONE": ("db2_timezone()", Db2Type("DECIMAL", 6), 0),
    "DB2_CHAR": ("db2_char({0}, {1})", VARCHAR, 2),
    "VARCHAR_FORMAT": ("db2_format({0}, {1})", VARCHAR, 2),
    "INTEGER": ("db2_cast({0}, 'INTEGER')", INTEGER, 1),
}
"""Functions by name: how SQLite calls them, what they give, and how many arguments they take."""


@dataclass(frozen=True)
class Translation:
    """A statement for SQLite.

    Args:
        sql: the text.
        columns: names and types of what a query gives; empty for others.
        parameters: for each `?` of the text which parameter it takes.
        written: the table that it changes.
    """

    sql: str
    columns: tuple[Output, ...] = ()
    parameters: tuple[int, ...] = ()
    written: Table | None = None


@dataclass
class _Scope:
    """The tables of one SELECT by the names they go by there."""

    sources: dict[str, dict[str, Db2Type]] = field(default_factory=dict)
    outer: _Scope | None = None

    def column(self, table: str, name: str) -> Db2Type | None:
        """A column's type; None when no table here has it."""
        places = [self.sources[table]] if table in self.sources else [] if table else list(self.sources.values())
        found = next((place[name] for place in places if name in place), None)
        return found if found is not None or self.outer is None else self.outer.column(table, name)


def folded(identifier: Any) -> str:
    """An identifier as the catalog has it: as it is in quotes, in capitals without."""
    if not isinstance(identifier, exp.Identifier):
        raise syntax_error(str(identifier))
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).upper()


class Translator:
    """Translates one statement.

    Args:
        find: a table by schema and name.
        schema: the schema of names without one.
    """

    def __init__(self, find: Find, schema: str) -> None:
        self._find = find
        self._schema = schema
        self._parameters: list[int] = []
        self._given = 0

    def translate(self, statement: str) -> Translation:
        """The statement for SQLite.

        Raises:
            Error: as a server would answer; NotSupportedError for what is not known here.
        """
        tree = parse(statement)
        if isinstance(tree, exp.Insert):
            sql, table = self._insert(tree)
            return Translation(sql, (), tuple(self._parameters), table)
        if isinstance(tree, exp.Update):
            sql, table = self._update(tree)
            return Translation(sql, (), tuple(self._parameters), table)
        if isinstance(tree, exp.Delete):
            sql, table = self._delete(tree)
            return Translation(sql, (), tuple(self._parameters), table)
        sql, columns = self._query(tree, None)
        return Translation(sql, columns, tuple(self._parameters))

    # Queries.

    def _query(self, tree: Any, outer: _Scope | None) -> tuple[str, tuple[Output, ...]]:
        if isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
            return self._query(tree.this, outer)
        if isinstance(tree, exp.Union):
            if tree.args.get("distinct") is not False or tree.args.get("limit") or tree.args.get("with_"):
                raise not_emulated("a UNION that is not UNION ALL")
            left, columns = self._query(tree.this, outer)
            right, _ = self._query(tree.expression, outer)
            order = tree.args.get("order")
            if order is not None:
                raise not_emulated("ORDER BY of a UNION")
            return f"{left} UNION ALL {right}", columns
        if not isinstance(tree, exp.Select):
            raise not_emulated(f"a query that is {type(tree).__name__}")
        _refuse(tree, {"expressions", "from_", "where", "order", "limit", "joins", "group", "distinct", "offset"})
        scope = _Scope(outer=outer)
        source = self._from(tree, scope)
        fields, columns = self._fields(tree, scope)
        where = tree.args.get("where")
        condition = f" WHERE {self._condition(where.this, scope)}" if where is not None else ""
        group = tree.args.get("group")
        grouped = ""
        if group is not None:
            _refuse(group, {"expressions"})
            grouped = " GROUP BY " + ", ".join(self._expression(e, scope)[0] for e in group.expressions)
        order = tree.args.get("order")
        ordered = f" ORDER BY {self._order(order, scope, dict(columns))}" if order is not None else ""
        distinct = "DISTINCT " if tree.args.get("distinct") is not None else ""
        return f"SELECT {distinct}{fields}{source}{condition}{grouped}{ordered}{self._fetch(tree)}", columns

    def _fetch(self, tree: Any) -> str:
        limit, offset = tree.args.get("limit"), tree.args.get("offset")
        if offset is not None and (not isinstance(offset.expression, exp.Literal) or limit is None):
            if isinstance(offset.expression, exp.Literal) and str(offset.expression.this) == "0":
                return ""
            raise not_emulated("an OFFSET without FETCH FIRST")
        if limit is None:
            return ""
        if not isinstance(limit, exp.Fetch):
            raise not_emulated("LIMIT; write FETCH FIRST n ROWS ONLY")
        count = limit.args.get("count")
        text = "1" if count is None else str(count.this)
        if not text.isdigit():
            raise syntax_error(text)
        return f" LIMIT {text}" + (f" OFFSET {int(str(offset.expression.this))}" if offset is not None else "")

    def _from(self, tree: Any, scope: _Scope) -> str:
        origin = tree.args.get("from_")
        if origin is None:
            raise syntax_error("END-OF-STATEMENT")
        text = f" FROM {self._source(origin.this, scope)}"
        for join in tree.args.get("joins") or ():
            _refuse(join, {"this", "on", "side", "kind"})
            side = str(join.args.get("side") or "").upper()
            kind = str(join.args.get("kind") or "").upper()
            if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER", "CROSS"):
                raise not_emulated(f"a {side} {kind} JOIN")
            joined = self._source(join.this, scope)
            on = join.args.get("on")
            text += f" {side} JOIN {joined}" + (f" ON {self._condition(on, scope)}" if on is not None else "")
        return text

    def _source(self, tree: Any, scope: _Scope) -> str:
        alias = tree.args.get("alias")
        if alias is not None:
            _refuse(alias, {"this"})
        name = folded(alias.this) if alias is not None else ""
        if isinstance(tree, exp.Subquery):
            sql, columns = self._query(tree.this, scope.outer)
            scope.sources[name] = dict(columns)
            return f"({sql}) AS {quoted(name)}" if name else f"({sql})"
        table = self.table(tree)
        name = name or table.name
        scope.sources[name] = {column.name: column.type for column in table.columns}
        return f"{quoted(table.path)} AS {quoted(name)}"

    def table(self, tree: Any) -> Table:
        """The table that a tree names; raises SQL0204N."""
        if not isinstance(tree, exp.Table):
            raise not_emulated(f"{type(tree).__name__} in the place of a table")
        _refuse(tree, {"this", "db", "alias"})
        schema = folded(tree.args["db"]) if tree.args.get("db") is not None else self._schema
        name = folded(tree.this)
        found = self._find(schema, name)
        if found is None:
            raise undefined(f"{schema}.{name}")
        return found

    def _fields(self, tree: Any, scope: _Scope) -> tuple[str, tuple[Output, ...]]:
        parts: list[str] = []
        columns: list[Output] = []
        for number, field_ in enumerate(tree.expressions, 1):
            star = field_ if isinstance(field_, exp.Star) else None
            qualifier = ""
            if isinstance(field_, exp.Column) and isinstance(field_.this, exp.Star):
                star, qualifier = field_.this, folded(field_.args["table"])
            if star is not None:
                _refuse(star, set())
                for source, known in scope.sources.items():
                    if qualifier in ("", source):
                        parts += [f"{quoted(source)}.{quoted(name)}" if source else quoted(name) for name in known]
                        columns += known.items()
                continue
            inner, name = field_, ""
            if isinstance(field_, exp.Alias):
                inner, name = field_.this, folded(field_.args["alias"])
            elif isinstance(field_, exp.Column):
                name = folded(field_.this)
            sql, kind = self._expression(inner, scope)
            name = name or str(number)
            parts.append(f"{sql} AS {quoted(name)}")
            columns.append((name, kind))
        return ", ".join(parts), tuple(columns)

    def _order(self, order: Any, scope: _Scope, outputs: dict[str, Db2Type]) -> str:
        parts = []
        for term in order.expressions:
            _refuse(term, {"this", "desc", "nulls_first"})
            if isinstance(term.this, exp.Column) and not term.this.args.get("table"):
                name = folded(term.this.this)
                sql = quoted(name) if name in outputs else self._expression(term.this, scope)[0]
            else:
                sql = self._expression(term.this, scope)[0]
            # NULL is the greatest value of all.
            parts.append(f"{sql} DESC NULLS FIRST" if term.args.get("desc") else f"{sql} ASC NULLS LAST")
        return ", ".join(parts)

    # Expressions.

    def _condition(self, tree: Any, scope: _Scope) -> str:
        if isinstance(tree, exp.Paren):
            return f"({self._condition(tree.this, scope)})"
        if isinstance(tree, exp.And | exp.Or):
            word = "AND" if isinstance(tree, exp.And) else "OR"
            return f"({self._condition(tree.this, scope)} {word} {self._condition(tree.expression, scope)})"
        if isinstance(tree, exp.Not):
            return f"NOT ({self._condition(tree.this, scope)})"
        if isinstance(tree, exp.Is):
            if not isinstance(tree.expression, exp.Null):
                raise not_emulated("IS with another word than NULL")
            return f"{self._expression(tree.this, scope)[0]} IS NULL"
        if isinstance(tree, exp.Exists):
            return f"EXISTS ({self._query(tree.this, scope)[0]})"
        if isinstance(tree, exp.Between):
            parts = [self._expression(part, scope)[0] for part in (tree.this, tree.args["low"], tree.args["high"])]
            return f"{parts[0]} BETWEEN {parts[1]} AND {parts[2]}"
        if isinstance(tree, exp.In):
            left = self._expression(tree.this, scope)[0]
            query = tree.args.get("query")
            if query is not None:
                return f"{left} IN ({self._query(query, scope)[0]})"
            return f"{left} IN ({', '.join(self._expression(e, scope)[0] for e in tree.expressions)})"
        if isinstance(tree, exp.Like):
            left, right = self._expression(tree.this, scope)[0], self._expression(tree.expression, scope)[0]
            return f"db2_like({left}, {right})"
        for kind, operator in _COMPARISONS.items():
            if type(tree) is kind:
                return self._comparison(tree, operator, scope)
        raise not_emulated(f"the condition {type(tree).__name__}")

    def _comparison(self, tree: Any, operator: str, scope: _Scope) -> str:
        left, left_type = self._expression(tree.this, scope)
        right, right_type = self._expression(tree.expression, scope)
        if left_type.numeric or right_type.numeric:
            # Exact, whatever the other side is kept as.
            left = left if left_type.numeric else f"CAST({left} AS TEXT)"
            right = right if right_type.numeric else f"CAST({right} AS TEXT)"
            return f"{left} {operator} {right} COLLATE db2_number"
        if left_type.binary or right_type.binary:
            return f"{left} {operator} {right}"
        if left_type.column.startswith("TEXT") and not isinstance(tree.this, exp.Column):
            return f"{left} {operator} {right} COLLATE db2_text"
        return f"{left} {operator} {right}"

    def _expression(self, tree: Any, scope: _Scope) -> tuple[str, Db2Type]:
        if isinstance(tree, exp.Column):
            table = folded(tree.args["table"]) if tree.args.get("table") is not None else ""
            name = folded(tree.this)
            kind = scope.column(table, name)
            if kind is None:
                raise unknown_column(f"{table}.{name}" if table else name)
            return (f"{quoted(table)}.{quoted(name)}" if table else quoted(name)), kind
        if isinstance(tree, exp.Paren):
            sql, kind = self._expression(tree.this, scope)
            return f"({sql})", kind
        if isinstance(tree, exp.Literal):
            return _literal(tree)
        if isinstance(tree, exp.HexString):
            return f"X'{_hex(tree)}'", Db2Type("VARCHAR", len(_hex(tree)) // 2, bits=True)
        if isinstance(tree, exp.Null):
            return "NULL", VARCHAR
        if isinstance(tree, exp.Boolean):
            return str(int(tree.this)), BOOLEAN
        if isinstance(tree, exp.Placeholder):
            self._parameters.append(self._given)
            self._given += 1
            return "?", VARCHAR
        if isinstance(tree, exp.Cast):
            return self._cast(tree, scope)
        if isinstance(tree, exp.Neg):
            sql, kind = self._expression(tree.this, scope)
            return (f"db2_arithmetic('-', '0', {sql})" if kind.numeric else f"-{sql}"), kind
        if isinstance(tree, exp.DPipe):
            left, right = self._expression(tree.this, scope)[0], self._expression(tree.expression, scope)[0]
            return f"{left} || {right}", VARCHAR
        if isinstance(tree, exp.Case):
            return self._case(tree, scope)
        if isinstance(tree, exp.Subquery):
            sql, columns = self._query(tree.this, scope)
            return f"({sql})", columns[0][1]
        if isinstance(tree, exp.Window):
            return self._window(tree, scope)
        for kind_of, operator in _ARITHMETIC.items():
            if type(tree) is kind_of:
                return self._arithmetic(tree, operator, scope)
        return self._function(tree, scope)

    def _cast(self, tree: Any, scope: _Scope) -> tuple[str, Db2Type]:
        _refuse(tree, {"this", "to"})
        to = tree.args["to"]
        text = str(to.args.get("kind") or to.this.value) if hasattr(to.this, "value") else str(to.args.get("kind"))
        text = {"TEXT": "CLOB", "USERDEFINED": str(to.args.get("kind") or "")}.get(text, text)
        text = {"FLOAT": "REAL", "INT": "INTEGER"}.get(text, text)
        sizes = ",".join(str(e.this.this) for e in to.expressions)
        if not sizes and text in ("VARCHAR", "VARBINARY"):
            sizes = "32672"
        target = parse_type(f"{text}({sizes})" if sizes else text)
        sql, kind = self._expression(tree.this, scope)
        if sql == "NULL":
            return "NULL", target
        if kind.name == "XML" and target.name in ("CLOB", "DBCLOB"):
            return sql, target
        return f"db2_cast({sql}, '{target.declaration}')", target

    def _case(self, tree: Any, scope: _Scope) -> tuple[str, Db2Type]:
        _refuse(tree, {"ifs", "default"})
        parts, kinds = [], []
        for branch in tree.args["ifs"]:
            value, kind = self._expression(branch.args["true"], scope)
            parts.append(f"WHEN {self._condition(branch.this, scope)} THEN {value}")
            kinds.append(kind)
        default = tree.args.get("default")
        if default is not None:
            value, kind = self._expression(default, scope)
            parts.append(f"ELSE {value}")
            kinds.append(kind)
        return f"CASE {' '.join(parts)} END", kinds[0]

    def _window(self, tree: Any, scope: _Scope) -> tuple[str, Db2Type]:
        _refuse(tree, {"this", "order", "over", "partition_by", "spec"})
        inner, kind = self._expression(tree.this, scope)
        order, parts = tree.args.get("order"), tree.args.get("partition_by") or ()
        partition = "PARTITION BY " + ", ".join(self._expression(p, scope)[0] for p in parts) + " " if parts else ""
        ordered = f"ORDER BY {self._order(order, scope, {})}" if order is not None else ""
        spec = tree.args.get("spec")
        if spec is not None and (spec.args.get("start"), spec.args.get("kind")) != ("UNBOUNDED", "ROWS"):
            raise not_emulated("this frame of a window")
        return f"{inner} OVER ({partition}{ordered}{' ROWS UNBOUNDED PRECEDING' if spec is not None else ''})", kind

    def _arithmetic(self, tree: Any, operator: str, scope: _Scope) -> tuple[str, Db2Type]:
        left, left_type = self._expression(tree.this, scope)
        right, right_type = self._expression(tree.expression, scope)
        if left_type.name in ("TIMESTAMP", "DATE", "TIME") or right_type.name in ("TIMESTAMP", "DATE", "TIME"):
            raise not_emulated("arithmetic of dates and times")
        if "DOUBLE" in (left_type.name, right_type.name) or "REAL" in (left_type.name, right_type.name):
            return f"({left} {operator} {right})", DOUBLE
        if left_type.numeric or right_type.numeric:
            kind = next(kind for kind in (left_type, right_type) if kind.numeric)
            return f"db2_arithmetic('{operator}', {left}, {right})", kind
        return f"({left} {operator} {right})", left_type if left_type.name in ("INTEGER", "BIGINT") else right_type

    def _function(self, tree: Any, scope: _Scope) -> tuple[str, Db2Type]:
        if isinstance(tree, exp.Count):
            inner = "*" if isinstance(tree.this, exp.Star) else self._expression(tree.this, scope)[0]
            return f"COUNT({inner})", INTEGER
        if isinstance(tree, exp.Max | exp.Min):
            if tree.args.get("expressions"):
                raise not_emulated("MAX or MIN of several values")
            inner, kind = self._expression(tree.this, scope)
            return f"{'MAX' if isinstance(tree, exp.Max) else 'MIN'}({inner})", kind
        if isinstance(tree, exp.RowNumber):
            return "ROW_NUMBER()", BIGINT
        if isinstance(tree, exp.Hex | exp.LowerHex):
            inner, kind = self._expression(tree.this, scope)
            if not kind.binary:
                raise not_emulated("HEX of what is not binary")
            return f"db2_hex({inner})", VARCHAR
        if isinstance(tree, exp.Coalesce):
            parts = [self._expression(part, scope) for part in (tree.this, *tree.expressions)]
            return f"COALESCE({', '.join(sql for sql, _ in parts)})", parts[0][1]
        if isinstance(tree, exp.Mod):
            left, right = self._expression(tree.this, scope), self._expression(tree.expression, scope)
            return f"({left[0]} % {right[0]})", left[1]
        if isinstance(tree, exp.Length):
            return f"LENGTH({self._expression(tree.this, scope)[0]})", INTEGER
        if isinstance(tree, exp.Upper | exp.Lower):
            return (
                f"{'UPPER' if isinstance(tree, exp.Upper) else 'LOWER'}({self._expression(tree.this, scope)[0]})",
                VARCHAR,
            )
        name = str(tree.this).upper() if isinstance(tree, exp.Anonymous) else type(tree).__name__.upper()
        name = {"TOCHAR": "VARCHAR_FORMAT"}.get(name, name)
        known = _FUNCTIONS.get(name)
        if known is None:
            raise not_emulated(f"the function or expression {name}")
        sql, kind, count = known
        given = tree.expressions if isinstance(tree, exp.Anonymous) else [tree.this, tree.args.get("format")]
        arguments = [e for e in given if e is not None]
        if len(arguments) != count:
            raise not_emulated(f"{name} with {len(arguments)} arguments")
        if name == "DB2_CHAR":
            style = folded(arguments[1].this)
            if style not in ("ISO", "JIS"):
                raise not_emulated(f"CHAR(..., {style})")
            return sql.format(self._expression(arguments[0], scope)[0], f"'{style}'"), kind
        return sql.format(*(self._expression(e, scope)[0] for e in arguments)), kind

    # Changes.

    def _insert(self, tree: Any) -> tuple[str, Table]:
        _refuse(tree, {"this", "expression"})
        target, named = tree.this, None
        if isinstance(target, exp.Schema):
            named = [folded(e) for e in target.expressions]
            target = target.this
        table = self.table(target)
        columns = [_column_of(table, name) for name in named] if named is not None else list(table.columns)
        source = tree.expression
        if not isinstance(source, exp.Values):
            sql, outputs = self._query(source, None)
            fields = ", ".join(_assigned(quoted(name), c) for (name, _), c in zip(outputs, columns, strict=True))
            names = ", ".join(quoted(c.name) for c in columns)
            return f"INSERT INTO {quoted(table.path)} ({names}) SELECT {fields} FROM ({sql}) WHERE 1", table
        missing = [c for c in table.columns if c not in columns]
        rows = []
        for row in source.expressions:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row]
            if len(cells) != len(columns):
                raise syntax_error("VALUES")
            values = [self._value(cell, column, table) for cell, column in zip(cells, columns, strict=True)]
            rows.append(f"({', '.join([*values, *(self._default(c, table) for c in missing)])})")
        names = ", ".join(quoted(c.name) for c in (*columns, *missing))
        return f"INSERT INTO {quoted(table.path)} ({names}) VALUES {', '.join(rows)}", table

    def _value(self, cell: Any, column: Column, table: Table) -> str:
        if isinstance(cell, exp.Var) and str(cell.this).upper() == "DEFAULT":
            return self._default(column, table)
        if column.identity == "A":
            raise syntax_error(f"a value for the GENERATED ALWAYS column {column.name}")
        return _assigned(self._expression(cell, _Scope())[0], column)

    def _default(self, column: Column, table: Table) -> str:
        if column.identity:
            return f"db2_identity({_text(table.path)}, {_text(column.name)})"
        if column.default is None:
            if not column.nullable:
                raise null_refused(column.name)
            return "NULL"
        tree = parse(f"SELECT {column.default} FROM SYSIBM.SYSDUMMY1")
        return _assigned(self._expression(tree.expressions[0], _Scope())[0], column)

    def _update(self, tree: Any) -> tuple[str, Table]:
        _refuse(tree, {"this", "expressions", "where"})
        table = self.table(tree.this)
        scope = _Scope({table.name: {c.name: c.type for c in table.columns}})
        sets = []
        for change in tree.expressions:
            if not isinstance(change, exp.EQ):
                raise not_emulated("this SET")
            column = _column_of(table, folded(change.this.this))
            if isinstance(change.expression, exp.Column) and folded(change.expression.this) == "DEFAULT":
                sets.append(f"{quoted(column.name)} = {self._default(column, table)}")
                continue
            sets.append(f"{quoted(column.name)} = {_assigned(self._expression(change.expression, scope)[0], column)}")
        return f"UPDATE {quoted(table.path)} SET {', '.join(sets)}{self._where(tree, table, scope)}", table

    def _delete(self, tree: Any) -> tuple[str, Table]:
        _refuse(tree, {"this", "where"})
        table = self.table(tree.this)
        scope = _Scope({table.name: {c.name: c.type for c in table.columns}})
        return f"DELETE FROM {quoted(table.path)}{self._where(tree, table, scope)}", table

    def _where(self, tree: Any, table: Table, scope: _Scope) -> str:
        alias = tree.this.args.get("alias")
        if alias is not None:
            raise not_emulated("a correlation name of a changed table")
        where = tree.args.get("where")
        return f" WHERE {self._condition(where.this, scope)}" if where is not None else ""


def _refuse(tree: Any, known: set[str]) -> None:
    odd = [name for name, value in tree.args.items() if value not in (None, False, [], "") and name not in known]
    if odd:
        raise not_emulated(f"{odd[0].upper().rstrip('_')} of {type(tree).__name__.upper()}")


def _column_of(table: Table, name: str) -> Column:
    found = table.column(name)
    if found is None:
        raise unknown_column(name)
    return found


def _assigned(sql: str, column: Column) -> str:
    return f"db2_assign({sql}, {_text(column.type.declaration)}, {_text(column.name)}, {int(column.nullable)})"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _hex(tree: Any) -> str:
    # sqlglot keeps the number and drops zeros that lead.
    return str(tree.this)


def _literal(tree: Any) -> tuple[str, Db2Type]:
    text = str(tree.this)
    if tree.args.get("is_string"):
        return _text(text), Db2Type("VARCHAR", max(len(text.encode()), 1))
    if text.isdigit():
        return text, INTEGER if int(text) < 2**31 else BIGINT
    if "e" in text.lower():
        return text, DOUBLE
    whole, _, fraction = text.partition(".")
    # Text, because SQLite would make a floating-point number of it.
    return _text(text), Db2Type("DECIMAL", max(len(whole) + len(fraction), 1), len(fraction))


def columns_of(outputs: Sequence[Output]) -> list[str]:
    return [name for name, _ in outputs]
