"""Rules: what a pipeline file says of an option is what its owner parses at the end of the way, and a value without
anything in it is an error unless the option says that it means something.

The tables walk all options of all sources, formats and sinks, and those of transforms, routes and Kafka.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import registry
from headrace.errors import OptionError
from headrace.options import OTHER_NAMES, Option, as_text, folder, items
from headrace.pipeline.kafka_source import KafkaTopics
from headrace.pipeline.shaping.routes import RoutedSinkSettings, RouteSettings
from headrace.pipeline.shaping.transforms import TransformSettings
from headrace.pipeline.watch import ObserveSettings

EVERY = {
    **{f"{kind} {name}": registry.find(kind, name).options for kind in ("source", "format", "sink")
       for name in registry.built_in_names(kind)},
    "transforms": TransformSettings.declared,
    "routes": (*RouteSettings.declared, *RoutedSinkSettings.declared),
    "observe": ObserveSettings.declared,
    "source kafka": KafkaTopics.options,
}  # fmt: skip
OPTIONS = [pytest.param(option, id=f"{owner}: {option.name}") for owner in EVERY for option in EVERY[owner]]
OF_SOURCES = [option for owner in EVERY if owner.startswith("source ") for option in EVERY[owner]]
MAY_BE_EMPTY = {"catalog.*", "kafka.*", "password", "security"}
TEXTS = st.text(st.sampled_from(r"ab.,;:\{}[]()\"'1 *?|-é"), max_size=12)
VALUES = TEXTS | st.lists(TEXTS, max_size=4) | st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=3), max_size=3)


def parsed(option: Option, value: object) -> object:
    try:
        return option.parse(value)
    except OptionError:
        return "refused"


@given(st.sampled_from(OF_SOURCES), VALUES)
def test_what_the_file_says_is_what_the_reader_parses(option: Option, value: object) -> None:
    said = parsed(option, value)
    assert said == "refused" or parsed(option, as_text(value)) == said


@given(st.lists(st.text(min_size=1).filter(lambda text: text == text.strip() != ""), min_size=1))
def test_a_list_keeps_its_parts_whatever_they_hold(parts: list[str]) -> None:
    assert items(parts) == items(as_text(parts)) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("dbo.a, dbo.b,", ["dbo.a", "dbo.b"]),
        ("[ab].*, dbo.c", ["[ab].*", "dbo.c"]),
        ("[1].t", ["[1].t"]),
        ("[12]", ["[12]"]),
        ('["a,b", "c"]', ["a,b", "c"]),
    ],
)
def test_text_is_cut_at_commas_unless_it_is_a_json_array_of_texts(text: str, parts: list[str]) -> None:
    assert items(text) == parts


def refusal(option: Option, value: object) -> str:
    """What the error says; nothing where the value is taken."""
    try:
        option.parse(value)
    except OptionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("option", OPTIONS)
def test_an_empty_value_is_an_error_unless_the_option_says_otherwise(option: Option) -> None:
    if option.name in MAY_BE_EMPTY and (option.may_be_empty or "" in option.choices):
        return
    taken = [text for text in ("", "  ") if f"Option '{option.name}' is empty" not in refusal(option, text)]
    assert taken == []


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.values[0].kind not in (str, folder, int, float, bool)])
def test_an_empty_list_or_part_of_one_is_an_error(option: Option) -> None:
    values = ([], {}, (), ",", [""], ["a", ""], [None])
    assert [value for value in values if f"ption '{option.name}'" not in refusal(option, value)] == []


@pytest.mark.parametrize("name", ["database", "tables", "table", "user", "column.mask.with.3.chars"])
def test_an_empty_value_stops_every_reader_with_the_place(name: str) -> None:
    options = {"hostname": "there", "database": "shop", name: ""}
    found = registry.find("source", "sqlserver")
    with pytest.raises(OptionError) as error:
        found.parse(options)
    assert error.value.message.startswith("Option '") and error.value.message.endswith("' is empty.")


def test_commas_alone_are_no_database() -> None:
    found = registry.find("source", "sqlserver")
    with pytest.raises(OptionError, match="Option 'database' is empty"):
        found.of({"hostname": "there", "database": " , "})


LISTED = {"table", "signal_data_collection"}
"""Options of one text that name what is captured."""


def holds_several(option: Option) -> bool:
    """Whether a value of an option is a list, a mapping or patterns."""
    if option.kind in (str, int, float, bool):
        return option.name in LISTED or "column." in option.name or "overrides" in option.name
    for value in ("dbo.a.b,dbo.c.d", ["dbo.a.b"], {"dbo.a": "b"}, "dbo.a:b"):
        try:
            found = option.parse(value)
        except OptionError:
            continue
        return isinstance(found, (tuple, list, frozenset, dict))
    return False


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_holds_several_says_what_they_name(option: Option) -> None:
    # So that no list of patterns is forgotten where they are held against what is captured.
    assert option.names is not None or not holds_several(option), "declare names=Names(...)"


def test_lists_of_columns_and_tables_are_held_against_what_is_captured() -> None:
    found = {option.name for owner in EVERY for option in EVERY[owner] if option.names not in (None, OTHER_NAMES)}
    assert found == {
        *("table", "tables", "tables_excluded", "signal_data_collection", "message_key_columns"),
        *("column_include_list", "column_exclude_list", "include_columns", "exclude_columns"),
        *("column.mask.with.*", "column.mask.hash.*", "column.truncate.to.*", "column_propagate_source_type"),
        *("snapshot_select_statement_overrides", "snapshot.select.statement.overrides.*"),
        "snapshot_include_collection_list",
        *(
            "column_list",
            "except_column_list",
            "track_history_column_list",
            "track_history_except_column_list",
            "partition_by",
        ),
    }
