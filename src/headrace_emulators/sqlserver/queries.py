"""SELECT of T-SQL as SQLite statements: queries inside of queries, joins, and the change functions of capture."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from headrace_emulators.sqlserver import dialect
from headrace_emulators.sqlserver.catalog import TableInfo, quoted
from headrace_emulators.sqlserver.errors import ProgrammingError, invalid_object
from headrace_emulators.sqlserver.expressions import ExpressionTranslator, text_literal
from headrace_emulators.sqlserver.function_calls import CALLS
from headrace_emulators.sqlserver.scope import Output, Relation, Scope, Value
from headrace_emulators.sqlserver.types import SqlType

Finder = Callable[[str, str, str], tuple[TableInfo, str]]
"""(database or empty, schema, name) -> the table and its SQLite name; raises error 208."""

_SHARED_HINTS = frozenset(("HOLDLOCK", "SERIALIZABLE", "REPEATABLEREAD"))
_STABLE_HINTS = _SHARED_HINTS | {"TABLOCKX"}
_CHANGES = "fn_cdc_get_all_changes_"
_MEMBERS = 400


class QueryTranslator(ExpressionTranslator):
    """Translates queries against the catalog as it is.

    Args:
        statement: its text.
        find: where tables are looked up.
        variables: names and types of the batch's variables.
        sequence: gives the key of a sequence by schema and name.
    """

    def __init__(
        self,
        statement: str,
        find: Finder,
        variables: tuple[tuple[str, SqlType], ...] = (),
        sequence: Callable[[str, str], str] | None = None,
    ) -> None:
        super().__init__(statement)
        self._find = find
        self._declared = dict(variables)
        self._parameters = 0
        self._variables: list[str] = []
        self._sets: list[str] = []
        self._sequence = sequence
        self._sequences: list[str] = []
        self._read: list[TableInfo] = []
        self._computed: set[str] = set()
        self._stable = self._shared = False

    def constant(self, text: str, scope: Scope | None = None) -> Value:
        """An expression on its own, such as a default."""
        tree = dialect.parse(f"SELECT {text}")
        return self.expression(tree.expressions[0].unalias(), scope or Scope())

    def elsewhere(self, database: str, sql: str) -> str:
        """SQLite text that reads the capture catalog, made to read that of another database."""
        _, path = self._find(database, "cdc", "lsn_time_mapping")
        return sql.replace('"cdc.', path.removesuffix('cdc.lsn_time_mapping"') + "cdc.")

    def next_value(self, schema: str, name: str) -> Value:
        if self._sequence is None:
            raise ProgrammingError(
                "NEXT VALUE FOR function is not allowed in check constraints, default objects, computed columns,"
                " views, user-defined functions, user-defined aggregates, user-defined table types, sub-queries,"
                " common table expressions, derived tables or return statements.", 11719
            )  # fmt: skip
        key = self._sequence(schema, name)
        self._sequences.append(key)
        return Value(f"tsql_next_value({text_literal(key)})", SqlType("bigint"))

    def variable(self, name: str) -> Value:
        """A variable of the batch; raises error 137 unless it is declared."""
        declared = self._declaration(name)
        if name.lower() not in self._variables:
            self._variables.append(name.lower())
        return Value(f"?{self._parameters + self._variables.index(name.lower()) + 1}", declared)

    def _declaration(self, name: str) -> SqlType:
        declared = self._declared.get(name.lower())
        if declared is None:
            raise ProgrammingError(f'Must declare the scalar variable "@{name}".', 137)
        return declared

    def call(self, name: str, arguments: list[exp.Expression], scope: Scope) -> Value:
        found = CALLS.get(name)
        if found is None:
            raise self.unknown(f"the function {name}")
        before, self.called = self.called, name
        try:
            return found(self, arguments, scope)
        except (IndexError, ValueError) as error:
            raise self.unknown(f"{name} with {len(arguments)} arguments") from error
        finally:
            self.called = before

    # Queries.

    def query(self, node: exp.Expression, scope: Scope | None) -> tuple[str, tuple[Output, ...]]:
        """A SELECT or a set operation, inside of another scope or on its own."""
        own = Scope(parent=scope)
        prefix = self._with(node, own)
        if isinstance(node, exp.Subquery):
            sql, outputs = self.query(node.this, own)
            return prefix + sql, outputs
        if isinstance(node, exp.Select):
            sql, outputs = self._select_body(node, own)
            return prefix + sql, outputs
        if isinstance(node, exp.Union | exp.Except | exp.Intersect):
            sql, outputs = self._set_operation(node, own)
            return prefix + sql, outputs
        raise self.unknown(node)

    def _with(self, node: exp.Expression, scope: Scope) -> str:
        clause = node.args.get("with_")
        if clause is None:
            return ""
        parts = []
        for query in clause.expressions:
            _check_order(query.this)
            sql, outputs = self.query(query.this, scope)
            given = [c.name for c in query.args["alias"].columns]
            names = given or [name for name, _ in outputs]
            scope.queries[query.alias.lower()] = tuple((n, t) for n, (_, t) in zip(names, outputs, strict=True))
            listed = ", ".join(quoted(n) for n in names)
            parts.append(f"{quoted(query.alias)} ({listed}) AS ({sql})")
        return "WITH " + ", ".join(parts) + " "

    def _set_operation(
        self, node: exp.Union | exp.Except | exp.Intersect, scope: Scope
    ) -> tuple[str, tuple[Output, ...]]:
        word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}[type(node)]
        if not node.args.get("distinct"):
            word += " ALL"
        translated = [self._member(member, scope) for member in _members(node)]
        merged = translated[0][1]
        for _, others in translated[1:]:
            if len(merged) != len(others):
                raise ProgrammingError(
                    "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of"
                    " expressions in their target lists.", 205
                )  # fmt: skip
            merged = tuple((name, known or other) for (name, known), (_, other) in zip(merged, others, strict=True))
        texts = [text for text, _ in translated]
        # SQLite takes at most 500 members at once.
        while len(texts) > _MEMBERS:
            groups = [texts[i : i + _MEMBERS] for i in range(0, len(texts), _MEMBERS)]
            texts = [f"SELECT * FROM ({f' {word} '.join(group)})" for group in groups]
        sql = f" {word} ".join(texts)
        order = node.args.get("order")
        if order is not None:
            own = Scope([Relation("", merged)], scope, bare_names=True)
            sql = f"SELECT * FROM ({sql}) ORDER BY " + ", ".join(self.ordered(o, own) for o in order.expressions)
        return sql + self._limit(node, scope), merged

    def _member(self, node: exp.Expression, scope: Scope) -> tuple[str, tuple[Output, ...]]:
        sql, outputs = self.query(node, scope)
        plain = isinstance(node, exp.Select) and not node.args.get("limit")
        return (sql if plain or isinstance(node, exp.Union) else f"SELECT * FROM ({sql})"), outputs

    def _select_body(self, node: exp.Select, scope: Scope) -> tuple[str, tuple[Output, ...]]:
        for part in ("for_", "into", "pivots", "laterals", "qualify", "windows", "connect"):
            if node.args.get(part):
                raise self.unknown(f"the clause {part.strip('_').upper()}")
        source = self._from(node, scope)
        projections, outputs = self._projections(node, scope)
        parts = ["SELECT " + ("DISTINCT " if node.args.get("distinct") else "") + ", ".join(projections)]
        if source:
            parts.append("FROM " + source)
        where = node.args.get("where")
        if where is not None:
            parts.append("WHERE " + self.expression(where.this, scope).sql)
        group = node.args.get("group")
        if group is not None:
            parts.append("GROUP BY " + ", ".join(self.expression(g, scope).sortable for g in group.expressions))
        having = node.args.get("having")
        if having is not None:
            parts.append("HAVING " + self.expression(having.this, scope).sql)
        order = node.args.get("order")
        if order is not None:
            parts.append("ORDER BY " + ", ".join(self._order_item(o, scope, outputs, node) for o in order.expressions))
        return " ".join(parts) + self._limit(node, scope), outputs

    def _projections(self, node: exp.Select, scope: Scope) -> tuple[list[str], tuple[Output, ...]]:
        projections: list[str] = []
        outputs: list[Output] = []
        for item in node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                alias = item.table if isinstance(item, exp.Column) else ""
                for name, value in scope.star(alias):
                    projections.append(f"{value.sql} AS {quoted(name)}")
                    outputs.append((name, value.type))
                continue
            if isinstance(item, exp.EQ) and isinstance(item.this, exp.Parameter):
                self._declaration(item.this.name)
                self._sets.append(item.this.name)
                item = item.expression
            value = self.expression(item.unalias(), scope)
            # A projection that assigns to its own alias keeps the collation; an unnamed one has an empty name, as on
            # a server.
            name = item.alias if isinstance(item, exp.Alias) else item.name if isinstance(item, exp.Column) else ""
            shown = value.sortable if value.collation else value.sql
            projections.append(f"{shown} AS {quoted(name)}" if name else shown)
            outputs.append((name, value.type))
        return projections, tuple(outputs)

    def _order_item(self, node: exp.Expression, scope: Scope, outputs: tuple[Output, ...], select: exp.Select) -> str:
        inner = node.this
        direction = " DESC" if node.args.get("desc") else ""
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return inner.name + direction
        if isinstance(inner, exp.Column) and not inner.table:
            aliases = {e.alias.lower(): e for e in select.expressions if isinstance(e, exp.Alias)}
            if inner.name.lower() in aliases:
                declared = {n.lower(): t for n, t in outputs}[inner.name.lower()]
                return Value(quoted(inner.name), declared).sortable + direction
        return self.ordered(node, scope)

    def _limit(self, node: exp.Expression, scope: Scope) -> str:
        limit, offset = node.args.get("limit"), node.args.get("offset")
        text = ""
        if limit is not None:
            options = limit.args.get("limit_options")
            if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
                raise self.unknown("TOP ... PERCENT or WITH TIES")
            count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
            text = " LIMIT " + (self.expression(count, scope).sql if count is not None else "1")
        if offset is not None:
            text = (text or " LIMIT -1") + " OFFSET " + self.expression(offset.expression, scope).sql
        return text

    # FROM.

    def _from(self, node: exp.Expression, scope: Scope) -> str:
        clause = node.args.get("from_")
        if clause is None:
            return ""
        return self._joined(clause.this, scope, node.args.get("joins") or [])

    def _joined(self, first: exp.Expression, scope: Scope, joins: list[exp.Expression]) -> str:
        text = self._relation(first, scope)
        for join in [*(first.args.get("joins") or []), *joins]:
            relation = self._relation(join.this, scope)
            side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
            on = join.args.get("on")
            if on is None:
                text += f" CROSS JOIN {relation}"
                continue
            word = f"{side} JOIN" if side else "JOIN"
            if kind not in ("", "INNER", "OUTER", "CROSS") or join.args.get("using"):
                raise self.unknown(f"the join {kind}")
            text += f" {word} {relation} ON {self.expression(on, scope).sql}"
        return text

    def _relation(self, node: exp.Expression, scope: Scope) -> str:
        if isinstance(node, exp.Table):
            return self._table(node, scope)
        if isinstance(node, exp.Subquery):
            _check_order(node.this)
            sql, outputs = self.query(
                node.this, scope.parent if scope.parent is not None else Scope(queries=scope.queries)
            )
            return self._aliased(f"({sql})", node, outputs, scope)
        if isinstance(node, exp.Values):
            rows = [[self.expression(v, scope) for v in row.expressions] for row in node.expressions]
            outputs = tuple((f"column{i + 1}", v.type) for i, v in enumerate(rows[0]))
            text = ", ".join("(" + ", ".join(v.sql for v in row) + ")" for row in rows)
            return self._aliased(f"(VALUES {text})", node, outputs, scope)
        raise self.unknown(node)

    def _aliased(self, sql: str, node: exp.Expression, outputs: tuple[Output, ...], scope: Scope) -> str:
        alias = node.args.get("alias")
        given = [c.name for c in alias.columns] if alias is not None else []
        if given:
            renamed = ", ".join(f"{quoted(o)} AS {quoted(g)}" for (o, _), g in zip(outputs, given, strict=True))
            sql = f"(SELECT {renamed} FROM {sql})"
            outputs = tuple((g, t) for g, (_, t) in zip(given, outputs, strict=True))
        for name, _ in outputs:
            if not name:
                raise ProgrammingError(f"No column name was specified for a column of '{node.alias}'.", 8155)
        scope.relations.append(Relation(node.alias, outputs))
        return f"{sql} AS {quoted(node.alias)}"

    def _table(self, node: exp.Table, scope: Scope) -> str:
        for hint in node.args.get("hints") or []:
            for word in hint.expressions:
                self._stable |= word.name.upper() in _STABLE_HINTS
                self._shared |= word.name.upper() in _SHARED_HINTS
        if isinstance(node.this, exp.Anonymous):
            return self._changes(node, scope)
        name, schema, database = node.name, node.db, node.catalog
        alias = node.alias or name
        if not schema and not database:
            outputs = scope.query(name)
            if outputs is not None:
                scope.relations.append(Relation(alias, outputs))
                return f"{quoted(name)} AS {quoted(alias)}"
        table, path = self.table(node)
        columns = tuple((c.name, c.type) for c in table.columns)
        scope.relations.append(Relation(alias, columns, not table.computed, table))
        return f"{path} AS {quoted(alias)}"

    def table(self, node: exp.Table) -> tuple[TableInfo, str]:
        """The table a FROM clause names and its SQLite name; notes that it is read."""
        table, path = self._find(node.catalog, node.db or "dbo", node.name)
        if table.computed:
            self._computed.add(table.path)
        self._read.append(table)
        return table, path

    def _changes(self, node: exp.Table, scope: Scope) -> str:
        function = node.this
        name = str(function.this)
        if node.db.lower() != "cdc" or not name.lower().startswith(_CHANGES):
            raise invalid_object(".".join(p for p in (node.db, name) if p))
        instance = name[len(_CHANGES) :]
        try:
            table, path = self._find(node.catalog, "cdc", instance + "_CT")
        except ProgrammingError:
            raise invalid_object(f"cdc.{name}") from None
        self._read.append(table)
        if len(function.expressions) != 3:
            raise ProgrammingError(
                f"An insufficient number of arguments were supplied for the procedure or function cdc.{name}.", 313
            )
        low, high, option = (self.expression(e, scope).sql for e in function.expressions)
        hidden = ("__$end_lsn", "__$command_id")
        columns = tuple((c.name, c.type) for c in table.columns if c.name not in hidden)
        listed = ", ".join(quoted(c) for c, _ in columns)
        oldest = f'(SELECT start_lsn FROM "cdc.change_tables" WHERE capture_instance = {text_literal(instance)})'
        newest = '(SELECT MAX(start_lsn) FROM "cdc.lsn_time_mapping")'
        if node.catalog:
            oldest, newest = (self.elsewhere(node.catalog, text) for text in (oldest, newest))
        # The check comes first in the join, or a range without rows would never be checked.
        sql = (
            f"(SELECT {listed} FROM (SELECT tsql_check_range({low}, {high}, {oldest}, {newest}, {option}) AS ok) AS"
            " checked"
            f' CROSS JOIN {path} WHERE checked.ok AND "__$start_lsn" >= {low} AND "__$start_lsn" <= {high}'
            f" AND (\"__$operation\" <> 3 OR {option} = 'all update old' COLLATE NOCASE))"
        )
        alias = node.alias or name
        scope.relations.append(Relation(alias, columns, True))
        return f"{sql} AS {quoted(alias)}"


def _check_order(node: exp.Expression) -> None:
    """Refuse an ORDER BY where it would order nothing; raises error 1033."""
    if node.args.get("order") is not None and node.args.get("limit") is None and node.args.get("offset") is None:
        raise ProgrammingError(
            "The ORDER BY clause is invalid in views, inline functions, derived tables, subqueries, and common table"
            " expressions, unless TOP, OFFSET or FOR XML is also specified.",
            1033,
        )


def _members(node: exp.Union | exp.Except | exp.Intersect) -> list[exp.Expression]:
    """The queries that a set operation combines; a chain of UNION ALL is one operation of many."""
    members: list[exp.Expression] = [node.expression]
    left = node.this
    chained = isinstance(node, exp.Union) and not node.args.get("distinct")
    while chained and isinstance(left, exp.Union) and not any(left.args.get(k) for k in ("distinct", "order", "limit")):
        members.append(left.expression)
        left = left.this
    return [left, *reversed(members)]
