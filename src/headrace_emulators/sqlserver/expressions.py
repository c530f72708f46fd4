"""T-SQL expressions as SQLite expressions, with the type that SQL Server would give them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any

from sqlglot import exp

from headrace_emulators.sqlserver.dialect import PLACEHOLDER, data_type
from headrace_emulators.sqlserver.errors import NotSupportedError, ProgrammingError, not_emulated
from headrace_emulators.sqlserver.scope import Output, Scope, Value
from headrace_emulators.sqlserver.types import (
    BIGINT,
    CASE_SENSITIVE,
    DATETIME2,
    DATETIMEOFFSET,
    DEFAULT_COLLATION,
    FLOAT,
    INT,
    NVARCHAR_MAX,
    SqlType,
    check_collation,
    sqlite_collation,
)

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}
_ARITHMETIC: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_BITS: dict[type[exp.Expression], str] = {exp.BitwiseAnd: "&", exp.BitwiseOr: "|"}
TEMPORAL = ("date", "time", "datetime", "offset")


_CLR_RESULTS = {
    "STASBINARY": SqlType("varbinary", -1), "STSRID": INT, "GETLEVEL": SqlType("smallint"), "STX": FLOAT, "STY": FLOAT,
    "LAT": FLOAT, "LONG": FLOAT,
}  # fmt: skip
_CLR_PROPERTIES = ("STSRID", "STX", "STY", "LAT", "LONG")


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def cast(value: Value, wanted: SqlType, style: int = 0, *, safe: bool = False) -> Value:
    """CAST or CONVERT of a translated expression."""
    source = value.type.declaration if value.type and not (value.literal and value.family == "string") else ""
    function = "tsql_try_cast" if safe else "tsql_cast"
    return Value(f"{function}({value.sql}, '{wanted.declaration}', '{source}', {style})", wanted)


def unified(values: list[Value]) -> SqlType | None:
    """The type that values of several branches have together: the highest in precedence."""
    types = [v.type for v in values if v.type is not None]
    if not types:
        return None
    best = max(types, key=lambda t: t.kind.rank)
    if best.family == "decimal":
        decimals = [t for t in types if t.family == "decimal"]
        scale = max(t.scale for t in decimals)
        whole = max(t.precision - t.scale for t in decimals)
        return SqlType("decimal", 0, min(38, whole + scale), scale) if len(decimals) > 1 else best
    if best.family in ("string", "binary") and best.length > 0:
        lengths = [t.length for t in types if t.family == best.family]
        return SqlType(best.name, -1 if -1 in lengths else max(lengths), collation=best.collation)
    return best


class ExpressionTranslator(ABC):
    """Translates the expressions of one statement.

    Args:
        statement: its text, for messages.
    """

    def __init__(self, statement: str) -> None:
        self.statement = statement
        self.called = ""
        """The function whose call is translated."""

    @abstractmethod
    def query(self, node: exp.Expression, scope: Scope | None) -> tuple[str, tuple[Output, ...]]:
        """A SELECT or a set operation."""

    @abstractmethod
    def call(self, name: str, arguments: list[exp.Expression], scope: Scope) -> Value:
        """A function call, by name in upper case."""

    @abstractmethod
    def elsewhere(self, database: str, sql: str) -> str:
        """SQLite text that reads the capture catalog, made to read that of another database."""

    @abstractmethod
    def next_value(self, schema: str, name: str) -> Value:
        """NEXT VALUE FOR a sequence."""

    @abstractmethod
    def variable(self, name: str) -> Value:
        """A variable of the batch."""

    def unknown(self, node: exp.Expression | str) -> NotSupportedError:
        what = node if isinstance(node, str) else f"{type(node).__name__} ({node.sql('tsql')[:80]})"
        return not_emulated(what, self.statement)

    def expression(self, node: exp.Expression, scope: Scope) -> Value:
        kind: type[Any] = type(node)
        if kind in _COMPARISONS:
            return self.compare(
                _COMPARISONS[kind], self.expression(node.this, scope), self.expression(node.expression, scope)
            )
        if kind in _ARITHMETIC:
            return self._arithmetic(
                _ARITHMETIC[kind], self.expression(node.this, scope), self.expression(node.expression, scope)
            )
        if kind in _BITS:
            left, right = self.expression(node.this, scope), self.expression(node.expression, scope)
            return Value(f"({left.sql} {_BITS[kind]} {right.sql})", unified([left, right]))
        method = getattr(self, f"_{kind.__name__.lower()}", None)
        if method is None:
            raise self.unknown(node)
        made = method(node, scope)
        assert isinstance(made, Value)
        return made

    # One method per kind of node; the name is the node's class in lower case.

    def _column(self, node: exp.Column, scope: Scope) -> Value:
        if not node.table and node.name.upper() in ("CURRENT_TIMESTAMP", "CURRENT_USER") and not node.this.quoted:
            return self.call(node.name.upper(), [], scope)
        if node.name == "0x" and not node.table:
            return Value("x''", SqlType("varbinary", 1), literal=True)
        if node.table and node.name.upper() in _CLR_PROPERTIES and not scope.knows(node.table):
            owner = scope.column(node.table, node.db)
            if owner.family == "clr":
                return self._of_clr(owner, node.name)
        return scope.column(node.name, node.table)

    def _identifier(self, node: exp.Identifier, scope: Scope) -> Value:
        return scope.column(node.name)

    def _paren(self, node: exp.Paren, scope: Scope) -> Value:
        inner = self.expression(node.this, scope)
        return Value(f"({inner.sql})", inner.type, False, inner.literal, inner.collation)

    def _literal(self, node: exp.Literal, scope: Scope) -> Value:
        text = node.name
        if node.is_string:
            return Value(text_literal(text), SqlType("varchar", max(len(text), 1)), literal=True)
        if "e" in text.lower():
            return Value(text, FLOAT, literal=True)
        if "." in text or abs(int(text)) >= 2**31:
            digits = Decimal(text).as_tuple()
            scale = max(-int(digits.exponent), 0)
            precision = max(len(digits.digits), scale, 1)
            return Value(
                text_literal(format(Decimal(text), "f")), SqlType("decimal", 0, min(precision, 38), scale), literal=True
            )
        return Value(text, INT, literal=True)

    def _national(self, node: exp.National, scope: Scope) -> Value:
        text = node.name
        return Value(text_literal(text), SqlType("nvarchar", max(len(text), 1)), literal=True)

    def _hexstring(self, node: exp.HexString, scope: Scope) -> Value:
        digits = node.name
        digits = "0" + digits if len(digits) % 2 else digits
        return Value(f"x'{digits}'", SqlType("varbinary", max(len(digits) // 2, 1)), literal=True)

    def _null(self, node: exp.Null, scope: Scope) -> Value:
        return Value("NULL", literal=True)

    def _parameter(self, node: exp.Parameter, scope: Scope) -> Value:
        inner = node.this
        if isinstance(inner, exp.Parameter):
            return self.call("@@" + inner.name.upper(), [], scope)
        name = inner.name
        if name.startswith(PLACEHOLDER):
            return Value(f"?{name.removeprefix(PLACEHOLDER)}", literal=True)
        return self.variable(name)

    def _nextvaluefor(self, node: exp.NextValueFor, scope: Scope) -> Value:
        return self.next_value(node.this.args["table"].name if node.this.args.get("table") else "dbo", node.this.name)

    def _neg(self, node: exp.Neg, scope: Scope) -> Value:
        inner = self.expression(node.this, scope)
        if inner.literal and inner.type is not None and inner.family == "decimal":
            return Value(text_literal("-" + inner.sql.strip("'")), inner.type, literal=True)
        if inner.family == "decimal" and inner.type is not None:
            return Value(f"tsql_arithmetic('-', '0', {inner.sql}, {inner.type.scale})", inner.type)
        return Value(f"(-{inner.sql})", inner.type, literal=inner.literal)

    def _bitwisenot(self, node: exp.BitwiseNot, scope: Scope) -> Value:
        inner = self.expression(node.this, scope)
        return Value(f"(1 - {inner.sql})" if inner.family == "bit" else f"(~{inner.sql})", inner.type)

    def _and(self, node: exp.And, scope: Scope) -> Value:
        return Value(f"({self.expression(node.this, scope).sql} AND {self.expression(node.expression, scope).sql})")

    def _or(self, node: exp.Or, scope: Scope) -> Value:
        return Value(f"({self.expression(node.this, scope).sql} OR {self.expression(node.expression, scope).sql})")

    def _not(self, node: exp.Not, scope: Scope) -> Value:
        return Value(f"(NOT {self.expression(node.this, scope).sql})")

    def _is(self, node: exp.Is, scope: Scope) -> Value:
        if not isinstance(node.expression, exp.Null):
            raise self.unknown(node)
        return Value(f"({self.expression(node.this, scope).sql} IS NULL)")

    def _between(self, node: exp.Between, scope: Scope) -> Value:
        value = self.expression(node.this, scope)
        low = self.compare(">=", value, self.expression(node.args["low"], scope))
        high = self.compare("<=", value, self.expression(node.args["high"], scope))
        return Value(f"({low.sql} AND {high.sql})")

    def _in(self, node: exp.In, scope: Scope) -> Value:
        value = self.expression(node.this, scope)
        query = node.args.get("query")
        if query is not None:
            sql, _ = self.query(query.this if isinstance(query, exp.Subquery) else query, scope)
            return Value(f"({value.sortable} IN ({sql}))")
        items = [self.expression(item, scope) for item in node.expressions]
        pairs = [self._aligned(value, item) for item in items]
        if all(left.sql == value.sql for left, _ in pairs):
            return Value(f"({value.sortable} IN ({', '.join(right.sql for _, right in pairs)}))")
        return Value("(" + " OR ".join(self.compare("=", value, item).sql for item in items) + ")")

    def _like(self, node: exp.Like, scope: Scope) -> Value:
        return self._liked(node, scope, "NULL")

    def _escape(self, node: exp.Escape, scope: Scope) -> Value:
        if not isinstance(node.this, exp.Like):
            raise self.unknown(node)
        return self._liked(node.this, scope, self.expression(node.expression, scope).sql)

    def _liked(self, node: exp.Like, scope: Scope, escape: str) -> Value:
        value, pattern = self.expression(node.this, scope), self.expression(node.expression, scope)
        collation = value.collation or pattern.collation or (value.type.collate if value.type else "")
        exact = int(collation in CASE_SENSITIVE)
        return Value(f"tsql_like({value.sql}, {pattern.sql}, {escape}, {exact})")

    def _exists(self, node: exp.Exists, scope: Scope) -> Value:
        inner = node.this
        sql, _ = self.query(inner.this if isinstance(inner, exp.Subquery) else inner, scope)
        return Value(f"EXISTS ({sql})")

    def _subquery(self, node: exp.Subquery, scope: Scope) -> Value:
        sql, outputs = self.query(node.this, scope)
        return Value(f"({sql})", outputs[0][1])

    def _select(self, node: exp.Select, scope: Scope) -> Value:
        sql, outputs = self.query(node, scope)
        return Value(f"({sql})", outputs[0][1])

    def _case(self, node: exp.Case, scope: Scope) -> Value:
        subject = self.expression(node.this, scope) if node.this else None
        branches, results = [], []
        for branch in node.args["ifs"]:
            test = self.expression(branch.this, scope)
            condition = test.sql if subject is None else self.compare("=", subject, test).sql
            result = self.expression(branch.args["true"], scope)
            branches.append((condition, result))
            results.append(result)
        default = (
            self.expression(node.args["default"], scope) if node.args.get("default") else Value("NULL", literal=True)
        )
        declared = unified([*results, default])
        text = " ".join(f"WHEN {condition} THEN {self.fitted(result, declared)}" for condition, result in branches)
        return Value(f"(CASE {text} ELSE {self.fitted(default, declared)} END)", declared)

    def _cast(self, node: exp.Cast, scope: Scope) -> Value:
        return cast(self.expression(node.this, scope), data_type(node.args["to"], self.statement))

    def _trycast(self, node: exp.TryCast, scope: Scope) -> Value:
        return cast(self.expression(node.this, scope), data_type(node.args["to"], self.statement), safe=True)

    def _convert(self, node: exp.Convert, scope: Scope) -> Value:
        style = node.args.get("style")
        number = 0
        if style is not None:
            if not isinstance(style, exp.Literal):
                raise self.unknown("a CONVERT style that is not a number")
            number = int(style.name)
        target = data_type(node.this, self.statement)
        return cast(self.expression(node.expression, scope), target, number, safe=bool(node.args.get("safe")))

    def _collate(self, node: exp.Collate, scope: Scope) -> Value:
        inner = self.expression(node.this, scope)
        name = node.expression.name
        declared = inner.type or SqlType("nvarchar", -1)
        check_collation(name)
        return Value(inner.sql, declared, collation=sqlite_collation(name, wide=declared.name != "varchar"))

    def _anonymous(self, node: exp.Anonymous, scope: Scope) -> Value:
        return self.call(str(node.this).upper(), list(node.expressions), scope)

    def _dot(self, node: exp.Dot, scope: Scope) -> Value:
        function = node.expression
        if not isinstance(function, exp.Anonymous):
            raise self.unknown(node)
        if self._owner(node.this).lower() != "sys":
            return self._method(node, function, scope)
        owner, database = node.this, ""
        if isinstance(owner, exp.Dot):
            owner, database = owner.expression, owner.this.name
        name = str(function.this).upper()
        value = self.call(name, list(function.expressions), scope)
        return value if not database else Value(self.elsewhere(database, value.sql), value.type)

    @staticmethod
    def _owner(node: exp.Expression) -> str:
        return node.expression.name if isinstance(node, exp.Dot) else node.name

    def _method(self, node: exp.Dot, function: exp.Anonymous, scope: Scope) -> Value:
        owner = node.this
        if isinstance(owner, exp.Identifier):
            value = scope.column(owner.name)
        elif isinstance(owner, exp.Dot) and isinstance(owner.this, exp.Identifier):
            value = scope.column(owner.expression.name, owner.this.name)
        else:
            value = self.expression(owner, scope)
        return self._of_clr(value, str(function.this))

    def _of_clr(self, value: Value, name: str) -> Value:
        if value.type is None or value.family != "clr":
            raise ProgrammingError(f"Cannot call methods on {value.type.declaration if value.type else 'NULL'}.", 258)
        declared = _CLR_RESULTS.get(name.upper(), NVARCHAR_MAX)
        return Value(f"tsql_clr('{value.type.name}', {text_literal(name.upper())}, {value.sql})", declared)

    def _scoperesolution(self, node: exp.ScopeResolution, scope: Scope) -> Value:
        kind, function = node.this.name.lower(), node.expression
        name = str(function.this).upper() if isinstance(function, exp.Anonymous) else ""
        arguments = [self.expression(a, scope).sql for a in getattr(function, "expressions", [])]
        if kind == "hierarchyid" and name in ("PARSE", "GETROOT"):
            path = arguments[0] if arguments else text_literal("/")
            return Value(f"tsql_clr_of('{kind}', {path}, NULL)", SqlType(kind))
        if kind in ("geometry", "geography") and name == "POINT" and len(arguments) == 3:
            # A geography's point is given as latitude, longitude; its text has them the other way round.
            first, second = arguments[:2] if kind == "geometry" else (arguments[1], arguments[0])
            text = f"'POINT (' || ({first}) || ' ' || ({second}) || ')'"
            return Value(f"tsql_clr_of('{kind}', {text}, {arguments[2]})", SqlType(kind))
        if kind in ("geometry", "geography") and (name == "PARSE" or name.endswith("FROMTEXT")):
            srid = arguments[1] if len(arguments) > 1 else "NULL"
            return Value(f"tsql_clr_of('{kind}', {arguments[0]}, {srid})", SqlType(kind))
        raise self.unknown(f"{node.this.name}::{name}")

    def _window(self, node: exp.Window, scope: Scope) -> Value:
        function = self.expression(node.this, scope)
        parts = []
        partition = [self.expression(e, scope).sortable for e in node.args.get("partition_by") or []]
        if partition:
            parts.append("PARTITION BY " + ", ".join(partition))
        order = node.args.get("order")
        if order is not None:
            parts.append("ORDER BY " + ", ".join(self.ordered(o, scope) for o in order.expressions))
        spec = node.args.get("spec")
        if spec is not None:
            parts.append(spec.sql("sqlite"))
        return Value(f"{function.sql} OVER ({' '.join(parts)})", function.type)

    def ordered(self, node: exp.Expression, scope: Scope) -> str:
        if not isinstance(node, exp.Ordered):
            raise self.unknown(node)
        return self.expression(node.this, scope).sortable + (" DESC" if node.args.get("desc") else "")

    def fitted(self, value: Value, declared: SqlType | None) -> str:
        """A branch's value in the type of the whole, where the spelling of the types differs."""
        if declared is None or value.type == declared or value.sql == "NULL":
            return value.sql
        if declared.family in (*TEMPORAL, "decimal", "guid") or (
            declared.family == "string" and value.family not in ("string", "")
        ):
            return cast(value, declared).sql
        return value.sql

    def compare(self, operator: str, left: Value, right: Value) -> Value:
        """A comparison, after both sides were given one type as SQL Server gives it."""
        self._check_collations(operator, left, right)
        left, right = self._aligned(left, right)
        collate = left.collation or right.collation
        if not collate and not left.bare and not right.bare:
            declared = left.type or right.type
            collate = declared.collate if declared else ""
        return Value(f"({left.sql} {operator} {right.sql}{f' COLLATE {chr(34)}{collate}{chr(34)}' if collate else ''})")

    @staticmethod
    def _check_collations(operator: str, left: Value, right: Value) -> None:
        # Only columns have a collation of their own; what is cast or computed takes on that of the other side.
        if not (left.bare and right.bare) or left.family != "string" or right.family != "string":
            return
        if left.collation or right.collation or left.type is None or right.type is None:
            return
        first, second = (t.collation or DEFAULT_COLLATION for t in (left.type, right.type))
        if first.lower() != second.lower():
            words = {"=": "equal to", "<>": "not equal to", ">": "greater than", "<": "less than"}.get(
                operator, operator
            )
            raise ProgrammingError(
                f'Cannot resolve the collation conflict between "{second}" and "{first}" in the {words} operation.', 468
            )

    def _aligned(self, left: Value, right: Value) -> tuple[Value, Value]:
        if left.type is None and right.type is None:
            return left, right
        if left.type is None or (
            left.literal and not right.literal and right.type is not None and left.family == "string"
        ):
            return self._as(left, right.type), right
        if right.type is None or (right.literal and not left.literal and right.family == "string"):
            return left, self._as(right, left.type)
        if left.type == right.type:
            return left, right
        if left.family == right.family:
            if left.family in TEMPORAL and not (
                left.type.name == right.type.name and left.type.scale == right.type.scale
            ):
                wanted = (
                    DATETIMEOFFSET
                    if left.family == "offset"
                    else SqlType("time", scale=7)
                    if left.family == "time"
                    else DATETIME2
                )
                return cast(left, wanted), cast(right, wanted)
            return left, right
        if {left.family, right.family} <= {"int", "bit", "float"}:
            return left, right
        if "float" in (left.family, right.family) and "decimal" in (left.family, right.family):
            return self._real(left), self._real(right)
        if left.family in TEMPORAL and right.family in TEMPORAL:
            wanted = DATETIMEOFFSET if "offset" in (left.family, right.family) else DATETIME2
            return cast(left, wanted), cast(right, wanted)
        if left.type.kind.rank >= right.type.kind.rank:
            return left, self._as(right, left.type)
        return self._as(left, right.type), right

    def _real(self, value: Value) -> Value:
        return Value(f"CAST({value.sql} AS REAL)", FLOAT) if value.family == "decimal" else value

    def _as(self, value: Value, wanted: SqlType | None) -> Value:
        if wanted is None or value.sql == "NULL" or wanted.family == value.family:
            return value
        if wanted.family == "decimal":
            # The order of decimals is numeric whatever their scale, so a constant keeps all its digits.
            return cast(value, SqlType("decimal", 0, 38, max(wanted.scale, 10)))
        if wanted.family in (*TEMPORAL, "guid", "clr", "int", "bit", "float"):
            return cast(value, wanted if wanted.family != "int" else BIGINT)
        return value

    def _arithmetic(self, operator: str, left: Value, right: Value) -> Value:
        families = {left.family, right.family}
        if operator == "+" and "string" in families and families <= {"string", ""}:
            return Value(f"({left.sql} || {right.sql})", _joined(left.type, right.type))
        if operator == "+" and families == {"binary"}:
            return Value(f"CAST({left.sql} || {right.sql} AS BLOB)", SqlType("varbinary", -1))
        if families & {*TEMPORAL, "guid", "binary"}:
            raise self.unknown(f"arithmetic '{operator}' on dates, times, binary or uniqueidentifier")
        if "string" in families:
            number = right.type if left.family == "string" else left.type
            left, right = self._as(left, number), self._as(right, number)
            families = {left.family, right.family}
        if "decimal" in families and "float" not in families:
            scale = _scale(operator, left.type or INT, right.type or INT)
            sql = f"tsql_arithmetic('{operator}', {left.sql}, {right.sql}, {scale})"
            return Value(sql, SqlType("decimal", 0, 38, scale))
        left, right = self._real(left), self._real(right)
        if operator in "/%":
            return Value(
                f"{'tsql_divide' if operator == '/' else 'tsql_modulo'}({left.sql}, {right.sql})",
                unified([left, right]),
            )
        return Value(f"({left.sql} {operator} {right.sql})", unified([left, right]))


def _scale(operator: str, left: SqlType, right: SqlType) -> int:
    if operator == "*":
        return min(left.scale + right.scale, 20)
    if operator == "/":
        return min(max(6, left.scale + (right.precision or 10) + 1), 20)
    return max(left.scale, right.scale)


def _joined(left: SqlType | None, right: SqlType | None) -> SqlType:
    wide = any(t is not None and t.wide for t in (left, right))
    lengths = [t.length if t is not None else -1 for t in (left, right)]
    total = -1 if min(lengths) <= 0 else sum(lengths)
    return SqlType("nvarchar" if wide else "varchar", total)
