"""SELECT, INSERT, UPDATE and DELETE of T-SQL as SQLite statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from headrace.emulators.sqlserver import dialect
from headrace.emulators.sqlserver.catalog import ColumnInfo, TableInfo, quoted
from headrace.emulators.sqlserver.errors import ProgrammingError, invalid_object
from headrace.emulators.sqlserver.expressions import ExpressionTranslator, text_literal
from headrace.emulators.sqlserver.function_calls import CALLS
from headrace.emulators.sqlserver.scope import Output, Relation, Scope, Value
from headrace.emulators.sqlserver.types import SqlType

Finder = Callable[[str, str, str], tuple[TableInfo, str]]
"""(database or empty, schema, name) -> the table and its SQLite name; raises error 208."""

_STABLE_HINTS = frozenset(("HOLDLOCK", "SERIALIZABLE", "TABLOCKX", "REPEATABLEREAD"))
_CHANGES = "fn_cdc_get_all_changes_"
_MEMBERS = 400


@dataclass
class Translation:
    """A statement ready for SQLite.

    Args:
        sql: the SQLite text; parameters are numbered.
        kind: query, insert, update or delete.
        columns: names and types of a query's result.
        parameters: how many parameters the T-SQL has.
        read: tables it reads.
        written: the table it changes.
        computed: names of system views whose rows are made before it runs.
        stable: whether its table hints ask that nothing changes until the transaction ends.
        sets_identity: whether it gives the identity column a value itself.
        assigned: the columns an UPDATE assigns.
        variables: the variables whose values follow the parameters, in order.
        sets: the variables that a query assigns, one per column.
        sequences: those it takes numbers from.
    """

    sql: str
    kind: str
    columns: tuple[Output, ...] = ()
    parameters: int = 0
    read: list[TableInfo] = field(default_factory=list)
    written: TableInfo | None = None
    computed: set[str] = field(default_factory=set)
    stable: bool = False
    sets_identity: bool = False
    assigned: tuple[str, ...] = ()
    variables: list[str] = field(default_factory=list)
    sets: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()


class StatementTranslator(ExpressionTranslator):
    """Translates one statement against the catalog as it is.

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
        self.called = ""
        self._read: list[TableInfo] = []
        self._computed: set[str] = set()
        self._stable = False

    def translate(self) -> Translation:
        """The whole statement."""
        text, self._parameters = dialect.numbered(self.statement)
        text, limit = _without_top(text)
        tree = dialect.parse(text)
        if isinstance(tree, exp.Insert):
            made = self._insert(tree)
        elif isinstance(tree, exp.Update):
            made = self._update(tree, limit)
        elif isinstance(tree, exp.Delete):
            made = self._delete(tree, limit)
        else:
            sql, outputs = self.query(tree, None)
            if self._sets and len(self._sets) != len(outputs):
                raise ProgrammingError(
                    "A SELECT statement that assigns a value to a variable must not be combined with data-retrieval"
                    " operations.", 141
                )  # fmt: skip
            made = Translation(sql, "query", outputs, sets=tuple(self._sets))
        made.sequences = tuple(dict.fromkeys(self._sequences))
        made.parameters, made.variables = self._parameters, self._variables
        made.read, made.computed, made.stable = self._read, self._computed, self._stable
        return made

    def constant(self, text: str, scope: Scope | None = None) -> Value:
        """An expression on its own, such as a default."""
        tree = dialect.parse(f"SELECT {text}")
        return self.expression(tree.expressions[0].unalias(), scope or Scope())

    def elsewhere(self, database: str, sql: str) -> str:
        """SQLite text that reads the capture catalog, made to read that of another database."""
        _, path = self._find(database, "cdc", "lsn_time_mapping")
        return sql.replace('"cdc.', path.removesuffix('cdc.lsn_time_mapping"') + "cdc.")

    def next_value(self, schema: str, name: str) -> Value:
        """NEXT VALUE FOR a sequence."""
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
        """A variable of the batch; raises error 137 when nobody declared it."""
        declared = self._declared.get(name.lower())
        if declared is None:
            raise ProgrammingError(f'Must declare the scalar variable "@{name}".', 137)
        if name.lower() not in self._variables:
            self._variables.append(name.lower())
        return Value(f"?{self._parameters + self._variables.index(name.lower()) + 1}", declared)

    def call(self, name: str, arguments: list[exp.Expression], scope: Scope) -> Value:
        """A function call, by name in upper case."""
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
                self.variable(item.this.name)
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

    # Changes.

    def assigned(self, value: Value, column: ColumnInfo, table: TableInfo) -> str:
        """A value on its way into a column."""
        kind, name = column.type.declaration, text_literal(column.name)
        if column.nullable:
            return f"tsql_assign({value.sql}, '{kind}', {name})"
        return f"tsql_assign_required({value.sql}, '{kind}', {name}, {text_literal(table.path)})"

    def missing(self, column: ColumnInfo, table: TableInfo) -> str:
        """What a column gets that an INSERT does not name."""
        if column.identity:
            return f"tsql_identity({table.object_id})"
        if column.type.name == "timestamp":
            return "tsql_rowversion()"
        return self.assigned(self.constant(column.default) if column.default else Value("NULL"), column, table)

    def target(self, node: exp.Table) -> tuple[TableInfo, str]:
        """The table that a statement changes."""
        table, path = self._find(node.catalog, node.db or "dbo", node.name)
        if node.catalog and "." in path.split('"')[0]:
            raise self.unknown("a change in another database")
        return table, path

    def _insert(self, node: exp.Insert) -> Translation:
        into = node.this
        table, path = self.target(into.this if isinstance(into, exp.Schema) else into)
        given = [table.column(c.name) for c in into.expressions] if isinstance(into, exp.Schema) else None
        writable = [c for c in table.columns if c.computed is None]
        if given is None:
            given = [c for c in writable if not c.identity and c.type.name != "timestamp"]
            if not node.args.get("default") and self._width(node) == len(writable):
                given = writable
        if node.args.get("default"):
            given = []
        for column in given:
            if column.computed is not None:
                raise ProgrammingError(
                    f'The column "{column.name}" cannot be modified because it is either a computed column or is the'
                    ' result'
                    " of a UNION operator.", 271
                )  # fmt: skip
        named = {c.column_id or c.name for c in given}
        rest = [c for c in writable if (c.column_id or c.name) not in named]
        fill = [self.missing(c, table) for c in rest]
        listed = ", ".join(quoted(c.name) for c in [*given, *rest])
        prefix, rows = self._inserted(node, given, fill, table)
        if not listed:
            raise self.unknown("an INSERT into a table without columns to fill")
        sql = f"{prefix}INSERT INTO {path} ({listed}) {rows}"
        sets = any(c.identity for c in given)
        return Translation(sql, "insert", written=table, sets_identity=sets)

    def _width(self, node: exp.Insert) -> int:
        source = node.expression
        if isinstance(source, exp.Values):
            return len(source.expressions[0].expressions)
        return len(self.query(source, None)[1])

    def _inserted(
        self, node: exp.Insert, given: list[ColumnInfo], fill: list[str], table: TableInfo
    ) -> tuple[str, str]:
        source = node.expression
        if source is None:
            return "", f"VALUES ({', '.join(fill)})"
        if isinstance(source, exp.Values):
            rows = []
            for row in source.expressions:
                values = row.expressions if isinstance(row, exp.Tuple) else [row]
                if len(values) != len(given):
                    raise ProgrammingError(
                        "Column name or number of supplied values does not match table definition.", 213
                    )
                cells = [self._cell(v, c, table) for v, c in zip(values, given, strict=True)]
                rows.append(f"({', '.join([*cells, *fill])})")
            return "", "VALUES " + ", ".join(rows)
        own = Scope()
        clause = self._with(node, own)
        sql, outputs = self.query(source, own)
        if len(outputs) != len(given):
            raise ProgrammingError("Column name or number of supplied values does not match table definition.", 213)
        names = [f"c{i}" for i in range(len(outputs))]
        cells = [
            self.assigned(Value(f'"emulator source".{n}', t), c, table)
            for n, (_, t), c in zip(names, outputs, given, strict=True)
        ]
        text = (clause + ", " if clause else "WITH ") + f'"emulator source" ({", ".join(names)}) AS ({sql}) '
        return text, f'SELECT {", ".join([*cells, *fill])} FROM "emulator source"'

    def _cell(self, node: exp.Expression, column: ColumnInfo, table: TableInfo) -> str:
        if isinstance(node, exp.Var) and node.name.upper() == "DEFAULT":
            return self.missing(column, table)
        return self.assigned(self.expression(node, Scope()), column, table)

    def _changed_rows(self, node: exp.Expression, scope: Scope, limit: str) -> tuple[TableInfo, str, str]:
        """The table that an UPDATE or DELETE changes, its SQLite name, and the alias it has in the scope."""
        named = node.this
        clause = node.args.get("from_")
        if clause is None:
            table, path = self.target(named)
            alias = named.alias or named.name
            scope.relations.append(Relation(alias, tuple((c.name, c.type) for c in table.columns), True, table))
            return table, path, alias
        first = clause.this
        if not isinstance(first, exp.Table) or limit:
            raise self.unknown("a change through a subquery, or TOP with FROM")
        alias = first.alias or first.name
        if named.name.lower() not in (alias.lower(), first.name.lower()):
            raise self.unknown("a change of a table that is not the first in FROM")
        table, path = self.target(first)
        scope.relations.append(Relation(alias, tuple((c.name, c.type) for c in table.columns), True, table))
        return table, path, alias

    def _update(self, node: exp.Update, limit: str) -> Translation:
        scope = Scope()
        prefix = self._with(node, scope)
        table, path, alias = self._changed_rows(node, scope, limit)
        clause = node.args.get("from_")
        joins = [
            *((clause.this.args.get("joins") or []) if clause is not None else []),
            *(node.args.get("joins") or []),
        ]
        sources, conditions = [], []
        for join in joins:
            if join.args.get("side"):
                raise self.unknown("an UPDATE with an outer join")
            sources.append(self._relation(join.this, scope))
            if join.args.get("on") is not None:
                conditions.append(join.args["on"])
        assignments, names = [], []
        for item in node.expressions:
            column = table.column(item.this.name)
            if column.identity:
                raise ProgrammingError(f"Cannot update identity column '{column.name}'.", 8102)
            value = item.expression
            if isinstance(value, exp.Column) and value.name.upper() == "DEFAULT" and not value.table:
                text = self.missing(column, table)
            else:
                text = self.assigned(self.expression(value, scope), column, table)
            assignments.append(f"{quoted(column.name)} = {text}")
            names.append(column.name)
        assignments += [f"{quoted(c.name)} = tsql_rowversion()" for c in table.columns if c.type.name == "timestamp"]
        if node.args.get("where") is not None:
            conditions.append(node.args["where"].this)
        tests = [self.expression(c, scope).sql for c in conditions]
        if limit:
            tests = [self._first_rows(path, alias, tests, limit, scope)]
        sql = f"{prefix}UPDATE {path} AS {quoted(alias)} SET {', '.join(assignments)}"
        sql += (" FROM " + " CROSS JOIN ".join(sources)) if sources else ""
        sql += (" WHERE " + " AND ".join(tests)) if tests else ""
        return Translation(sql, "update", written=table, assigned=tuple(names))

    def _first_rows(self, path: str, alias: str, tests: list[str], limit: str, scope: Scope) -> str:
        count = self.constant(limit, scope).sql
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        return f"rowid IN (SELECT {quoted(alias)}.rowid FROM {path} AS {quoted(alias)}{where} LIMIT {count})"

    def _delete(self, node: exp.Delete, limit: str) -> Translation:
        scope = Scope()
        prefix = self._with(node, scope)
        listed = node.args.get("tables") or []
        if listed:
            # DELETE t FROM dbo.table AS t JOIN ...: the rows are found by a query of their numbers.
            source = node.this
            alias = source.alias or source.name
            if listed[0].name.lower() not in (alias.lower(), source.name.lower()):
                raise self.unknown("a DELETE of a table that is not the first in FROM")
            table, path = self.target(source)
            text = self._joined(source, scope, node.args.get("joins") or [])
            where = node.args.get("where")
            test = f" WHERE {self.expression(where.this, scope).sql}" if where is not None else ""
            sql = f"{prefix}DELETE FROM {path} WHERE rowid IN (SELECT {quoted(alias)}.rowid FROM {text}{test})"
            return Translation(sql, "delete", written=table)
        table, path, alias = self._changed_rows(node, scope, limit)
        where = node.args.get("where")
        tests = [self.expression(where.this, scope).sql] if where is not None else []
        if limit:
            tests = [self._first_rows(path, alias, tests, limit, scope)]
        sql = f"{prefix}DELETE FROM {path} AS {quoted(alias)}" + (f" WHERE {tests[0]}" if tests else "")
        return Translation(sql, "delete", written=table)


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


def _without_top(text: str) -> tuple[str, str]:
    """An UPDATE or DELETE without its TOP clause, which sqlglot does not know there; and the count of that clause."""
    tokens = dialect.scan(text)
    if len(tokens) < 4 or tokens[0].text.upper() not in ("UPDATE", "DELETE") or tokens[1].text.upper() != "TOP":
        return text, ""
    depth = 0
    for token in tokens[2:]:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            end = token.end + 1
            return text[: tokens[1].start] + text[end:], text[tokens[2].start : end].strip("() ")
    return text, ""


def _no_table(database: str, schema: str, name: str) -> tuple[TableInfo, str]:
    raise invalid_object(f"{schema}.{name}")
