"""Rule: a component's options are the typed fields of one class, and everything about an option comes from there."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError

import pytest

from headrace.errors import OptionError
from headrace.settings import Component, Settings, option


class Login(Settings):
    """Shared by what logs in."""

    user: str | None = option("Who logs in.", default=None)
    password: str = option("The password.", default="")


class Limits(Settings):
    """Shared by what writes."""

    rows: int = option("Rows.", default=100, minimum=1)


class StoreSettings(Login, Limits):
    """Of the component below."""

    path: str = option("The folder.", aliases=("warehouse.dir",))
    tables: tuple[str, ...] = option("Tables.", default=())
    client: Mapping[str, str] = option("Settings of the client.", name="client.*", kind=str, default={})
    rows: int = option("Rows of a file.", default=10)


class Store(Component):
    role = "sink"
    name = "store"
    settings: StoreSettings


def test_a_component_is_made_from_what_a_user_gives():
    settings = Store.of({"warehouseDir": "/x", "Tables": "a, b", "client.retries": "3"}).settings
    assert (settings.path, settings.tables, settings.rows, settings.user) == ("/x", ("a", "b"), 10, None)
    assert settings.client == {"client.retries": "3"}
    assert settings == StoreSettings(path="/x", tables=("a", "b"), client={"client.retries": "3"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "Option 'path' of sink 'store' is missing. Set it: The folder."),
        ({"path": "x", "tabels": "a"}, "Unknown option 'tabels' for sink 'store'. Did you mean 'tables'?"),
        ({"path": "x", "rows": "many"}, "Option 'rows' can't be 'many': expected int. See: Rows of a file."),
    ],
)
def test_a_wrong_option_gets_one_sentence_with_a_remedy(given, sentence):
    with pytest.raises(OptionError) as error:
        Store.of(given)
    assert str(error.value) == sentence


def test_options_stand_in_the_order_of_the_bases_and_then_of_the_class_the_last_declaration_counts():
    assert [each.name for each in Store.options] == ["user", "password", "path", "tables", "client.*", "rows"]
    assert [each.kind for each in Store.options] == [str, str, str, list, str, int]


def test_a_value_is_found_by_its_option_too_for_what_serves_every_component():
    settings = StoreSettings(path="x")
    assert [settings.get(each.name) for each in settings.declared] == [None, "", "x", (), {}, 10]
    assert settings.get("nothing", "else") == "else"


def test_settings_show_no_secret_and_do_not_change():
    settings = StoreSettings(path="x", password="geheim", client={"client.token": "geheim"})
    assert "geheim" not in repr(settings)
    assert "'path': 'x'" in repr(settings)
    with pytest.raises(FrozenInstanceError):
        settings.path = "y"  # type: ignore[misc]
    assert settings.replaced(path="y").password == "geheim"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_settings_of_another_class_have_the_values_of_the_options_that_both_have():
    settings = StoreSettings(path="x", user="me", rows=3)
    assert settings.cast_to(Login, password="p") == Login(user="me", password="p")


def test_a_component_has_the_options_of_its_base():
    with pytest.raises(TypeError, match="The settings of Odd must be a kind of StoreSettings"):
        type("Odd", (Store,), {"__annotations__": {"settings": Login}})


def test_an_option_hides_no_method():
    with pytest.raises(TypeError, match="'get' of Odd is a method of Settings; give the field another name"):
        type("Odd", (Settings,), {"__annotations__": {"get": str}, "get": option("When.")})


@pytest.mark.parametrize(
    ("type_", "kind"),
    [(str, str), (int | None, int), (tuple[str, ...], list), ("tuple[str, ...]", list), ("bool", bool)],
)
def test_a_type_says_the_kind_as_a_text_and_as_itself(type_, kind):
    # A module without `from __future__ import annotations` has types, others have their texts.
    [declared] = type("Some", (Settings,), {"__annotations__": {"it": type_}, "it": option("It.")}).declared
    assert declared.kind is kind


def test_a_type_that_says_no_kind_needs_one():
    with pytest.raises(TypeError, match="Give option 'when' of Odd a kind: its type, complex, does not say it"):
        type("Odd", (Settings,), {"__annotations__": {"when": complex}, "when": option("When.")})
