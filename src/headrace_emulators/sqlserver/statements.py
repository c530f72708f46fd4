"""INSERT, UPDATE and DELETE of T-SQL, and whole statements, as SQLite statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from headrace_emulators.sqlserver import dialect
from headrace_emulators.sqlserver.catalog import ColumnInfo, TableInfo, quoted
from headrace_emulators.sqlserver.errors import ProgrammingError
from headrace_emulators.sqlserver.expressions import text_literal
from headrace_emulators.sqlserver.queries import QueryTranslator
from headrace_emulators.sqlserver.scope import Output, Relation, Scope, Value


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
        stable: whether its table hints keep what it read as it is until the transaction ends.
        shared: whether they do so by shared locks that are kept.
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
    shared: bool = False
    sets_identity: bool = False
    assigned: tuple[str, ...] = ()
    variables: list[str] = field(default_factory=list)
    sets: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()


class StatementTranslator(QueryTranslator):
    """Translates one statement against the catalog as it is.

    Args:
        statement: its text.
        find: where tables are looked up.
        variables: names and types of the batch's variables.
        sequence: gives the key of a sequence by schema and name.
    """

    def translate(self) -> Translation:
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
        made.read, made.computed = self._read, self._computed
        made.stable, made.shared = self._stable, self._shared
        return made

    # Changes.

    def assigned(self, value: Value, column: ColumnInfo, table: TableInfo) -> str:
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
