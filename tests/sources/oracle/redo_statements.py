"""Renders row changes as LogMiner prints them. Knows nothing of the parser."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st


@dataclass(frozen=True)
class Cell:
    """One value: how it is printed, what text it means (None for null), and how it counts in a SET."""

    printed: str
    meant: str | None
    call: bool = False
    unsupported: bool = False


@dataclass(frozen=True)
class Change:
    """One changed row; `old` are the columns of WHERE, `new` those of VALUES or SET."""

    op: str
    schema: str
    table: str
    old: dict[str, Cell] = field(default_factory=dict)
    new: dict[str, Cell] = field(default_factory=dict)

    @property
    def before(self) -> dict[str, str | None] | None:
        return None if self.op == "insert" else {name: cell.meant for name, cell in self.old.items()}

    @property
    def after(self) -> dict[str, str | None] | None:
        if self.op == "delete":
            return None
        if self.op == "insert":
            return {name: cell.meant for name, cell in self.new.items()}
        known = {name: cell.meant for name, cell in self.new.items() if not cell.unsupported}
        return {name: cell.meant for name, cell in self.old.items()} | known


@dataclass(frozen=True)
class Style:
    """How a statement is written: LogMiner's own way, unless told otherwise."""

    upper: bool = False
    blank: str = " "
    gap: str = ""
    alias: str = ""
    end: str = ";"
    equals_null: bool = False

    def word(self, word: str) -> str:
        return word.upper() if self.upper else word


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def rendered(change: Change, style: Style | None = None) -> str:
    """The statement of a change."""
    style = style or Style()
    blank, gap = style.blank, style.gap
    table = f'"{change.schema}"."{change.table}"'
    prefix = f"{style.alias}." if style.alias and change.op != "insert" else ""
    alias = f"{blank}{style.alias}" if style.alias else ""
    predicates = [
        f'{prefix}"{name}"{blank}{style.word("IS")}{blank}{style.word("NULL")}'
        if cell.printed == "NULL" and not style.equals_null
        else f'{prefix}"{name}"{blank}={blank}{cell.printed}'
        for name, cell in change.old.items()
    ]
    where = f"{blank}{style.word('where')}{blank}" if predicates else ""
    where += f"{blank}{style.word('and')}{blank}".join(predicates)
    if change.op == "insert":
        names = f"{gap},{gap}".join(f'"{name}"' for name in change.new)
        values = f"{gap},{gap}".join(cell.printed for cell in change.new.values())
        start = f"{style.word('insert')}{blank}{style.word('into')}{blank}{table}{gap}({gap}{names}{gap})"
        return f"{start}{blank}{style.word('values')}{blank}({gap}{values}{gap}){style.end}"
    if change.op == "delete":
        return f"{style.word('delete')}{blank}{style.word('from')}{blank}{table}{alias}{where}{style.end}"
    sets = f"{gap},{blank}".join(f'{prefix}"{name}"{blank}={blank}{cell.printed}' for name, cell in change.new.items())
    start = f"{style.word('update')}{blank}{table}{alias}{blank}{style.word('set')}{blank}{sets}"
    return f"{start}{where}{style.end}"


_BARE = st.characters(exclude_characters='"\x00', exclude_categories=["Cs"])
_TELLING = [
    "'",
    "''",
    '"',
    "||",
    " and ",
    ' and "A" = ',
    " where ",
    ",",
    ")",
    "',",
    "')",
    ";",
    "--",
    "/*",
    "*/",
    "NULL",
    "\n",
]
texts = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(_TELLING)), max_size=5).map("".join)
names = st.one_of(
    st.sampled_from(["ID", "COL 1", "set", "where", "and", "a,b", "c)d", "it's", "--", "/*", "ROWID", "NULL", "x#y$"]),
    st.text(_BARE, min_size=1, max_size=8),
).filter(lambda name: name != "ORA_ARCHIVE_STATE")
_CALLS = ["TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ", "TO_YMINTERVAL", "TO_DSINTERVAL", "HEXTORAW", "UNISTR"]


def _call(name: str, arguments: list[str], between: str) -> str:
    return f"{name}({between.join(map(quoted, arguments))})"


calls = st.one_of(
    st.builds(_call, st.sampled_from(_CALLS), st.lists(texts, min_size=1, max_size=3), st.sampled_from([", ", ","])),
    st.sampled_from(
        [
            "EMPTY_CLOB()",
            "EMPTY_BLOB()",
            "/* JSON */ EMPTY_BLOB()",
            "/* JSON */ HEXTORAW('0a')",
            "UNISTR('a') || UNISTR('it''s') || EMPTY_CLOB()",
            "EMPTY_CLOB() || UNISTR('a')",
            "UNISTR('a') || 'b' || N'c'",
            "F(G('('), (1 + 2), H(')'))",
            '"MDSYS"."SDO_GEOMETRY"(2001,NULL,SDO_POINT_TYPE(1,2,NULL),NULL)',
        ]
    ),
).map(lambda call: Cell(call, call, call=True))
numbers = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from([".5", "-.5", "1.", "+1", "1E3", "1.5e-10", "2f", "1.5D", "Nan", "Inf", "-Inf"]),
).map(lambda number: Cell(number, number))
cells = st.one_of(
    texts.map(lambda text: Cell(quoted(text), text)),
    texts.map(lambda text: Cell("N" + quoted(text), text)),
    st.lists(texts, min_size=2, max_size=3).map(lambda found: Cell(" || ".join(map(quoted, found)), "".join(found))),
    st.just(Cell("NULL", None)),
    st.sampled_from([Cell("Unsupported Type", None, unsupported=True), Cell("Unsupported", None, unsupported=True)]),
    numbers,
    calls,
)
_rows = st.dictionaries(names, cells, min_size=1, max_size=6)
changes = st.one_of(
    st.builds(Change, st.just("insert"), names, names, st.just({}), _rows),
    st.builds(Change, st.just("update"), names, names, st.one_of(st.just({}), _rows), _rows),
    st.builds(Change, st.just("delete"), names, names, st.one_of(st.just({}), _rows), st.just({})),
)
styles = st.builds(
    Style,
    st.booleans(),
    st.sampled_from([" ", "  ", "\n", "\t", " /* it's */ ", ' -- "\n', " /* ' */ /* \" */ "]),
    st.sampled_from(["", " ", "\r\n", "/**/"]),
    st.sampled_from(["", "a", '"A b"', "T1"]),
    st.sampled_from([";", "", " ; ", ";\n", " /* end */"]),
    st.booleans(),
)
