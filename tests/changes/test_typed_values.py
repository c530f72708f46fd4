"""A text is one value of its column's type, null where null may stand for it, or a sentence: in every session alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType
from headrace.changes.refusal import refused
from headrace.changes.typed import Misfit, literal, typed_value
from headrace.errors import SchemaError

SHOWN = {
    "date": "unix_date({})",
    "timestamp(6)": "unix_micros(cast({} as timestamp))",
    "instant(6)": "unix_micros({})",
}
"""Counts of days and microseconds, because Python has no year before 1."""
KINDS = ("date", "timestamp(6)", "instant(6)", "decimal(12,2)", "int8", "int32", "int64", "uint64", "boolean")
MAY_BE_NULL = re.compile(r"(?i)[+-]?inf(inity)?|-?\d{4,7}-\d\d-\d\d([T ][\d:.]+)?(Z|[+-][\d:]+)?( BC)?")
MOMENT = re.compile(
    r"(?P<year>[+-]?\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"([T ](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(\.(?P<f>\d{1,6}))?(?P<zone>Z|\+00)?)?(?P<bc> BC)?"
)


def days(found: re.Match[str]) -> int | None:
    """Days since 1970 in the calendar that goes on backwards, where 1 BC is the year 0."""
    year = 1 - int(found["year"]) if found["bc"] else int(found["year"])
    try:
        # All 400 years have the same calendar.
        return date(2000 + year % 400, int(found["month"]), int(found["day"])).toordinal() + (
            (year - year % 400 - 2000) // 400 * 146_097 - date(1970, 1, 1).toordinal()
        )
    except ValueError:
        return None


def model(text: str, kind: str) -> str | None:
    """What a text is: `=` and the value, None where null may stand for it, and `!` where it is refused always."""
    name = kind.partition("(")[0]
    if name in ("date", "timestamp", "instant"):
        found = MOMENT.fullmatch(text)
        day = None if found is None else days(found)
        if found is not None and day is not None:
            if name == "date":
                return f"={day}"
            clock = [int(found[part] or 0) for part in "hms"]
            micros = ((day * 24 + clock[0]) * 60 + clock[1]) * 60 + clock[2]
            micros = micros * 10**6 + int((found["f"] or "").ljust(6, "0"))
            if -(2**63) <= micros < 2**63:
                return f"={micros}"
        return None if MAY_BE_NULL.fullmatch(text) else "!"
    if name == "boolean":
        return f"={text}" if text in ("true", "false") else "!"
    if name in ("decimal", "uint64"):
        if re.fullmatch(r"(?i)nan|[+-]?inf(inity)?", text):
            return None
        places, most = (2, 10**10) if name == "decimal" else (0, 10**20)
        try:
            number = Decimal(text).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        except ArithmeticError:
            return "!"
        return f"={number}" if abs(number) < most else "!"
    try:
        number = int(text)
    except ValueError:
        return "!"
    bits = int(name.removeprefix("int"))
    return f"={number}" if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else "!"


ENDLESS = st.sampled_from(["infinity", "-infinity", "Infinity"])
BROKEN = st.sampled_from(["", "x1", "2024", "yes", "true", "O'Hara ${x}", "\\d"])
MONTHS_AND_DAYS = (st.integers(0, 13), st.integers(0, 31))
YEARS = st.integers(1, 4713) | st.sampled_from([0, 10_000, 294_246, 294_277, 5_874_897])
DAYS = (
    st.dates().map(str)
    | st.builds("{:04}-{:02}-{:02}".format, YEARS, *MONTHS_AND_DAYS)
    | st.builds("{:04}-{:02}-{:02} BC".format, st.integers(1, 4713), *MONTHS_AND_DAYS)
)
CLOCKS = st.times().map(lambda at: f"{at:%H:%M:%S}" + (f".{at.microsecond:06}" if at.microsecond else ""))


def moments(zoned: bool) -> st.SearchStrategy[str]:
    """As PostgreSQL prints what is not canonical, and as everything else is."""

    def text(day: str, clock: str) -> str:
        if day.endswith(" BC"):
            return f"{day.removesuffix(' BC')} {clock}{'+00' if zoned else ''} BC"
        return f"{day}T{clock}Z" if zoned else f"{day} {clock}"

    return st.builds(text, DAYS, CLOCKS)


NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.integers(-200, 200).map(str)
TEXTS = {
    "date": DAYS | ENDLESS | BROKEN,
    "timestamp(6)": moments(zoned=False) | ENDLESS | BROKEN,
    "instant(6)": moments(zoned=True) | ENDLESS | BROKEN,
    "boolean": st.sampled_from(["true", "false"]),
    "decimal(12,2)": st.decimals(-(10**10), 10**10, places=2).map(str) | ENDLESS | st.just("NaN") | NUMBERS,
    "uint64": st.integers(0, 2**70).map(str) | st.just("x"),
}
CELLS = st.lists(
    st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), TEXTS.get(kind, NUMBERS | BROKEN))),
    min_size=40,
    max_size=80,
)


def column(kind: str) -> Column:
    return Column("c", 1, LogicalType.parse(kind))


@pytest.fixture(scope="module", params=[True, False], ids=["ansi", "not ansi"])
def session(request: pytest.FixtureRequest, spark: Any) -> Iterator[Any]:
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", str(request.param).lower())
    other.conf.set("spark.sql.session.timeZone", "UTC")
    yield other


@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(cells=CELLS)
def test_every_session_reads_texts_as_the_model_does(session: Any, cells: list[tuple[str, str]]) -> None:
    expected = [(kind, text, model(text, kind)) for kind, text in cells]
    # What stops a query stands by itself below.
    wanted = [(kind, text, None if found is None else found[1:]) for kind, text, found in expected if found != "!"]
    cases = " ".join(
        f"when {literal(kind)} then cast({SHOWN.get(kind, '{}').format(typed_value('text', column(kind), NULL))} "
        "as string)"
        for kind in KINDS
    )
    rows = session.createDataFrame(wanted, "kind string, text string, wanted string").coalesce(1)
    found = rows.selectExpr("kind", "text", f"case kind {cases} end as found").collect()
    assert [tuple(row) for row in found] == wanted


NULL = Misfit(null=True)
GO_ON = Misfit("a.b", "concat('id=', '7')", remedy="Set an option.")
NO_PLACE = "Column 'c' of table a.b has the value {} in the row id=7, for which Spark's {} has no place. Set an option."
NO_VALUE = "A value of table a.b does not fit its column 'c' of type {} in the row id=7. Compare the values with the "
NO_VALUE += "source's column types."
STOPPING = [
    ("date", "infinity", NO_PLACE.format("infinity", "date")),
    ("date", "2024-00-00", NO_PLACE.format("2024-00-00", "date")),
    ("timestamp(3)", "0000-00-00 00:00:00.000", NO_PLACE.format("0000-00-00 00:00:00.000", "timestamp_ntz")),
    ("instant(6)", "-infinity", NO_PLACE.format("-infinity", "timestamp")),
    ("decimal(12,2)", "NaN", NO_PLACE.format("NaN", "decimal(12,2)")),
    ("int32", "3000000000", NO_VALUE.format("int32")),
    ("int32", "", NO_VALUE.format("int32")),
    ("date", "x1", NO_VALUE.format("date")),
]


@pytest.mark.parametrize(("kind", "text", "sentence"), STOPPING)
def test_what_no_type_has_a_place_for_stops_with_a_sentence(session: Any, kind: str, text: str, sentence: str) -> None:
    from pyspark.errors import PySparkException

    rows = session.range(1).selectExpr(f"{literal(text)} as text").coalesce(1)
    with pytest.raises(PySparkException) as caught:
        rows.selectExpr(f"cast({typed_value('text', column(kind), GO_ON)} as string)").collect()
    found = refused(str(caught.value))
    assert isinstance(found, SchemaError)
    assert found.message == sentence
    # Null stands for values of the source, and for nothing that is none.
    assert model(text, kind) is None or "does not fit" in sentence


def test_null_is_null(session: Any) -> None:
    rows = session.range(1).selectExpr("cast(null as string) as text")
    values = [f"{typed_value('text', column(kind), GO_ON)} is null as c{n}" for n, kind in enumerate(KINDS)]
    assert all(rows.selectExpr(*values).collect()[0])
