"""Rule: an option is accepted in every documented spelling, and a near miss is told the right one."""

import pytest

from headrace.errors import HeadraceDeprecationWarning, OptionError
from headrace.options import REDACTED, Former, Goes, is_secret
from headrace.settings import Settings, option


class Declared(Settings):
    """Options of a source."""

    topic_prefix: str = option(
        "The prefix.",
        aliases=("topic.prefix", "database.server.name"),
    )
    chunk_rows: int = option(
        "Rows.",
        default=1024,
        minimum=1,
        aliases=("incremental.snapshot.chunk.size",),
    )
    tombstones_on_delete: bool = option(
        "Tombstones.",
        default=True,
        aliases=("tombstones.on.delete",),
    )
    tables: tuple[str, ...] = option(
        "Tables.",
        default=(),
    )
    mode: str = option(
        "Mode.",
        default="a",
        choices=("a", "bee"),
    )
    password: str = option(
        "Secret.",
        default="",
    )


def parse(given):
    return Declared.parse(given, owner="source 'x'")


@pytest.mark.parametrize(
    "name", ["topic_prefix", "topicPrefix", "topicprefix", "topic.prefix", "database.server.name", "TOPIC.PREFIX"]
)
def test_every_spelling_of_an_option_is_accepted(name):
    assert parse({name: "p"}).topic_prefix == "p"


@pytest.mark.parametrize(
    ("given", "value"),
    [("true", True), ("No", False), (False, False), ("1", True)],
)
def test_booleans_are_read_as_people_write_them(given, value):
    assert parse({"topic_prefix": "p", "tombstonesOnDelete": given}).tombstones_on_delete is value


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "Option 'topic_prefix' of source 'x' is missing. Set it: The prefix."),
        ({"topic_prefx": "p"}, "Unknown option 'topic_prefx' for source 'x'. Did you mean 'topic_prefix'?"),
        (
            {"topic.prefix": "p", "topicPrefix": "q"},
            "Option 'topic_prefix' of source 'x' is given twice. Keep one spelling.",
        ),
        ({"topic_prefix": "p", "chunk_rows": "many"}, "Option 'chunk_rows' can't be 'many': expected int. See: Rows."),
        ({"topic_prefix": "p", "chunk_rows": "0"}, "Option 'chunk_rows' can't be 0. The minimum is 1."),
        ({"topic_prefix": "p", "mode": "be"}, "Option 'mode' can't be 'be'. Did you mean 'bee'?"),
    ],
)
def test_a_wrong_option_gets_one_sentence_with_a_remedy(given, sentence):
    with pytest.raises(OptionError) as error:
        parse(given)
    assert str(error.value) == sentence


def test_a_list_is_comma_separated_text_or_a_list():
    assert parse({"topic_prefix": "p", "tables": "dbo.a, dbo.b"}).tables == ("dbo.a", "dbo.b")
    assert parse({"topic_prefix": "p", "tables": ["dbo.a"]}).tables == ("dbo.a",)


def test_secrets_are_never_shown():
    options = parse({"topic_prefix": "p", "password": "hunter2"})
    assert "hunter2" not in repr(options)
    assert REDACTED in repr(options)
    with pytest.raises(OptionError) as error:
        parse({"topic_prefix": "p", "password": {"not": "hunter2"}})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("kafka.ssl.keystore.key", True),
        ("kafka.ssl.keystore.location", False),
        ("kafka.sasl.jaas.config", True),
        ("message.key.columns", False),
    ],
)
def test_a_name_tells_a_secret(name, secret):
    assert is_secret(name) == secret


class Renamed(Settings):
    """Options of which some had other names, or go."""

    folder: str = option("The folder.", default="", former=(Former("directory", "99.4"), Former("dir", "0.1")))
    depth: int = option("How deep.", default=1, goes=Goes("99.4", "Leave it out: every level is read."))
    width: int = option("How wide.", default=1, goes=Goes("0.1", "Leave it out: the screen says it."))


def renamed(given):
    return Renamed.parse(given, owner="source 'x'")


@pytest.mark.parametrize("name", ["directory", "Directory", "DIRECTORY"])
def test_a_former_name_works_and_warns_of_its_successor_and_of_the_release_that_has_it_no_more(name):
    with pytest.warns(HeadraceDeprecationWarning) as said:
        assert renamed({name: "a"}).folder == "a"
    assert [str(one.message) for one in said] == [
        "Option 'directory' of source 'x' is now 'folder'. Rename it: from Headrace 99.4 on the old name is an error."
    ]


def test_an_option_that_goes_works_and_says_what_to_do_and_nobody_is_warned_who_does_not_give_it(recwarn):
    assert renamed({"folder": "a"}).depth == 1
    assert not recwarn.list
    with pytest.warns(HeadraceDeprecationWarning) as said:
        assert renamed({"depth": "3"}).depth == 3
    assert [str(one.message) for one in said] == [
        "Option 'depth' of source 'x' is an error from Headrace 99.4 on. Leave it out: every level is read."
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"dir": "a"}, "Option 'dir' of source 'x' is 'folder' since Headrace 0.1. Rename it."),
        (
            {"width": "3"},
            "Headrace 0.1 and later have no option 'width' of source 'x'. Leave it out: the screen says it.",
        ),
        ({"directory": "a", "folder": "b"}, "Option 'folder' of source 'x' is given twice. Keep one spelling."),
    ],
)
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceDeprecationWarning")
def test_what_an_earlier_release_had_is_refused_with_what_to_do(given, sentence):
    with pytest.raises(OptionError) as refused:
        renamed(given)
    assert str(refused.value) == sentence
