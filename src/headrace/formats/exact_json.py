r"""JSON read by Spark without a number passing through a double.

`from_json` into a map of strings keeps integers, texts, `true` and `false` as they are written, but writes a number
with a fraction or an exponent anew, as a double (`12.50` becomes `12.5`, forty digits become seventeen). So such
numbers are quoted before the parse, with a mark in front that no JSON text can hold, and the mark is taken off behind
it. Only messages that hold such a number are treated so; the others cost one look.
"""

from __future__ import annotations

from headrace.changes.typed import literal

BAD = "_headrace_malformed"
"""The field that holds a text which is no JSON of the wanted form."""

OPTIONS = (
    f"map('columnNameOfCorruptRecord', '{BAD}', 'allowUnquotedControlChars', 'true', 'allowSingleQuotes', 'false', "
    "'allowNonNumericNumbers', 'false')"
)
"""How `from_json` reads here: as the JSON standard says, but for the marks."""

# A number with a fraction or an exponent, behind what can stand before a number (a bare colon would find every clock).
# It may also be found in a string: then a message is treated for nothing.
# A class of single characters comes first, because Java looks for one of those fastest by far.
_NUMERIC = r"(?:(?<=\")\s*+:|(?<=[\[,]))\s*+-?+[0-9]++[.eE]"
_NUMBER = r"[\"\[,]" + _NUMERIC
# Strings, whole numbers and all else up to the next such number. Possessive throughout: Java then neither backtracks
# nor recurses, whatever the length.
_MARKED = (
    r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+"|-?[0-9]++(?![0-9.eE]))*+)(-?[0-9]++(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+)'
)

_CLOSED = r"[}]\s*$"
SUSPICIOUS = r"[\"\[,}](?:" + _NUMERIC + r"|(?<=[}])\s*+(?:[^,}\]\s]|,\s*+[^\"\s]))"
"""What a text holds in which a number must be marked, or something may stand behind the object (one look for both)."""


def exact(text: str, mark: str = "mark") -> tuple[str, str]:
    """Spark SQL for the text to parse, and for its mark.

    Args:
        text: SQL for the JSON text: a column, because it is written several times.
        mark: the name of the column that will hold the mark.

    Returns:
        The mark (null where the text needs none), which must be made a column named `mark` first; and the text to give
        to `from_json` with `OPTIONS`.
    """
    # A text that spells a mark's character as an escape gets another mark.
    free = "case " + " ".join(
        f"when not contains({text}, {literal(escape)}) then '\\u000{n}'"
        for n, escape in ((1, "\\u0001"), (2, "\\u0002"), (3, "\\u0003"))
    )
    chosen = f"if({text} rlike {literal(_NUMBER)}, {free} else '\\u0004' end, null)"
    replaced = f"regexp_replace({text}, {literal(_MARKED)}, concat('$1\"', {mark}, '$2\"'))"
    return chosen, f"if({mark} is null, {text}, {replaced})"


def unmarked(value: str, mark: str = "mark") -> str:
    """Spark SQL for one parsed string value without the marks, at its beginning or inside nested JSON."""
    inner = f"concat('\"\\\\\\\\u000', ascii({mark}), '([^\"]*)\"')"
    return (
        f"case when {mark} is null then {value} when startswith({value}, {mark}) then substr({value}, 2) "
        f"when contains({value}, concat('\\\\u000', ascii({mark}))) then regexp_replace({value}, {inner}, '$1') "
        f"else {value} end"
    )


def unmarked_map(image: str, mark: str = "mark") -> str:
    """Spark SQL for a parsed map of strings without the marks; the map itself where the message has none."""
    return f"if({mark} is null or {image} is null, {image}, transform_values({image}, (k, v) -> {unmarked('v', mark)}))"


def more_behind(text: str, suspicious: str, depth: int) -> str:
    """Spark SQL: whether something stands behind the first JSON object of a text, which `from_json` would not read.

    Says nothing of what is inside the object.

    Args:
        text: SQL for the text.
        suspicious: SQL for whether `SUSPICIOUS` is found in it.
        depth: how deep objects are nested in a message as it should be; deeper ones cost a second parse.
    """
    # Asked precisely: one object in an array is an array of one.
    alone = f"coalesce(size(from_json(concat('[', {text}, ']'), 'array<map<string,string>>', {OPTIONS})), 0) = 1"
    closed = f"(endswith({text}, '}}') or {text} rlike {literal(_CLOSED)})"
    return f"(not {closed} or (({suspicious} or endswith({text}, {literal('}' * (depth + 1))})) and not {alone}))"
