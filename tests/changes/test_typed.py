"""What a column is found by, its name or its place, makes no difference to its value."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headrace.changes import Column, LogicalType
from headrace.changes.typed import (
    Misfit,
    in_order,
    laid_over,
    literal,
    presence_in_order,
    quote,
    texts_in_order,
    typed_struct,
    typed_value,
)

KINDS = {
    "id": ("int64", ["0", "-9223372036854775808", "9223372036854775807"]),
    "it's": ("string", ["", " ", "it's ${x}", "\u00e9\U0001f600", "\x00\n"]),
    "Price": ("decimal(12,2)", ["0.00", "-9999999999.99", "12.50"]),
    "price": ("decimal(38,9)", ["0.000000001", "-12345678901234567890123456789.987654321"]),
    "a.b": ("timestamp(6)", ["2024-02-29 23:59:59.123456", "0000-00-00 00:00:00", "2020-00-10"]),
    "day": ("date", ["2024-02-29", "0000-00-00", "9999-12-31"]),
    "raw": ("bytes", ["", "AAE=", "//8="]),
    "on": ("boolean", ["true", "false"]),
    "real": ("float64", ["0.1", "1e+22", "-0.0", "NaN"]),
}
COLUMNS = [Column(name, place, LogicalType.parse(kind)) for place, (name, (kind, _)) in enumerate(KINDS.items(), 1)]
NAMES = list(KINDS)
BESIDE = {"beside": ["", "x"], "ID": ["1"], "": ["x"]}

NULL = Misfit(null=True)
Image = dict[str, str | None] | None


def images(random: Random, count: int) -> list[tuple[Image, Image]]:
    """Images as sources and decoders may give them: whole, in part, with other columns, in any order; or none."""

    def image() -> Image:
        names = random.choice([NAMES, NAMES, random.sample(NAMES, len(NAMES)), random.sample([*NAMES, *BESIDE], 5), []])
        texts = {name: values for name, (_, values) in KINDS.items()} | BESIDE
        said = {name: random.choice([None, *texts[name]]) for name in names}
        return random.choice([said] * 9 + [None])

    return [(image(), image()) for _ in range(count)]


def by_name(image: str) -> str:
    """The same columns, looked up one by one: what `typed_struct` means."""
    fields = (f"{typed_value(f'{image}[{literal(c.name)}]', c, NULL)} as {quote(c.name)}" for c in COLUMNS)
    return f"if({image} is null, null, struct({', '.join(fields)}))"


def frame(spark: Any, rows: list[Any]) -> Any:
    return spark.createDataFrame(rows, "a map<string,string>, b map<string,string>").coalesce(1)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_columns_by_place_have_the_values_that_columns_by_name_have(spark: Any, seed: int) -> None:
    rows = images(Random(seed), 200)
    looked_up = frame(spark, rows).selectExpr(f"{by_name('a')} as row").collect()
    placed = frame(spark, rows).selectExpr(f"{texts_in_order('a', COLUMNS)} as texts")
    # As texts, because NaN is not itself.
    assert list(
        map(str, placed.selectExpr(f"{typed_struct('texts', COLUMNS, lambda _: NULL)} as row").collect())
    ) == list(map(str, looked_up))


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 2**32))
def test_absent_null_and_a_value_stay_three_things_in_what_images_say_together(spark: Any, seed: int) -> None:
    rows = images(Random(seed), 200)
    found = (
        frame(spark, rows)
        .selectExpr(
            f"{laid_over('a', 'b')} as both",
            # Spark's collect loses the order of a map.
            f"map_entries({in_order('a', NAMES)}) as ordered",
            f"{presence_in_order('map_keys(a)', NAMES)} as said",
        )
        .collect()
    )
    for (a, b), (both, ordered, said) in zip(rows, found, strict=True):
        assert both == (None if a is None or b is None else {**a, **b})
        assert ordered == (None if a is None else [(name, a[name]) for name in NAMES if name in a])
        assert said == (None if a is None else [name in a for name in NAMES])


@pytest.mark.parametrize("image", [{"id": "1"}, dict.fromkeys(NAMES) | {"id": "9" * 20}, {"id": "one"}])
def test_a_text_that_its_column_cannot_hold_stops_the_query_wherever_the_column_stands(
    spark: Any, image: dict[str, str | None]
) -> None:
    from pyspark.errors import PySparkException

    placed = frame(spark, [(image, None)]).selectExpr(f"{texts_in_order('a', COLUMNS)} as texts")
    row = placed.selectExpr(f"{typed_struct('texts', COLUMNS)} as row")
    if image["id"] == "1":
        assert row.collect()[0]["row"]["id"] == 1
        return
    with pytest.raises(PySparkException, match="A value does not fit its column 'id' of type int64"):
        row.collect()
