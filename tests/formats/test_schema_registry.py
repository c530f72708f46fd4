"""The option `registry`: asked through the real client, from a real HTTP server; and the server itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from headrace.errors import ConnectError, OptionError
from headrace.formats.registry.client import Registry, SchemaRef, registry_given
from headrace.formats.registry.settings import RegistrySettings, registry_of
from headrace_emulators.schema_registry.compatibility import problems
from headrace_emulators.schema_registry.server import SchemaRegistryServer

# Names of the client's own settings, so that a server that is down is found out at once.
IMPATIENT = {"registry.max.retries": "0", "registry.timeout": "5"}


def record(*fields: tuple[str, Any], name: str = "R") -> str:
    made = [
        {"name": n, "type": t, **({"default": None} if isinstance(t, list) and t[0] == "null" else {})}
        for n, t in fields
    ]
    return json.dumps({"type": "record", "name": name, "namespace": "n", "fields": made})


FIRST = record(("x", "int"))
SECOND = record(("x", "long"), ("y", ["null", "string"]))
OTHER = record(("x", "string"))


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with SchemaRegistryServer() as running:
        yield running


def registry(url: Any, **more: str) -> Registry:
    given = {"registry": url, **IMPATIENT, **more}
    return registry_of(RegistrySettings.parse(given, owner="the test"), "the test")


def by_id(*ids: int) -> list[SchemaRef]:
    return [SchemaRef("id", str(id)) for id in ids]


def test_the_client_registers_and_reads_like_at_any_registry(server: SchemaRegistryServer) -> None:
    client = SchemaRegistryClient({"url": server.url})
    assert client.register_schema("a-value", Schema(FIRST, "AVRO")) == 1
    assert client.register_schema("b-value", Schema(FIRST, "AVRO")) == 1
    assert client.register_schema("a-value", Schema(SECOND, "AVRO")) == 2
    assert client.get_subjects() == ["a-value", "b-value"]
    assert client.get_versions("a-value") == [1, 2]
    assert json.loads(client.get_latest_version("a-value").schema.schema_str) == json.loads(SECOND)
    assert client.lookup_schema("a-value", Schema(FIRST, "AVRO")).version == 1
    assert [(v.subject, v.version) for v in client.get_schema_versions(1)] == [("a-value", 1), ("b-value", 1)]
    assert client.test_compatibility("a-value", Schema(OTHER, "AVRO")) is False
    assert client.set_compatibility("a-value", "NONE") and client.get_compatibility("a-value") == "NONE"
    assert client.register_schema("a-value", Schema(OTHER, "AVRO")) == 3
    assert client.delete_subject("b-value") == [1]
    assert client.get_subjects() == ["a-value"]


@pytest.mark.parametrize(
    ("ask", "status", "code"),
    [
        (lambda c: c.get_schema(77), 404, 40403),
        (lambda c: c.get_versions("none"), 404, 40401),
        (lambda c: c.get_version("a-value", 9), 404, 40402),
        (lambda c: c.lookup_schema("a-value", Schema(SECOND, "AVRO")), 404, 40403),
        (lambda c: c.register_schema("a-value", Schema(OTHER, "AVRO")), 409, 409),
        (lambda c: c.register_schema("a-value", Schema('{"type":"nothing"}', "AVRO")), 422, 42201),
        (lambda c: c.set_compatibility("a-value", "SIDEWAYS"), 422, 42203),
        (lambda c: c.get_config("a-value"), 404, 40408),
    ],
)
def test_refusals_have_confluents_codes(server: SchemaRegistryServer, ask: Any, status: int, code: int) -> None:
    client = SchemaRegistryClient({"url": server.url})
    client.register_schema("a-value", Schema(FIRST, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refusal:
        ask(client)
    assert (refusal.value.http_status_code, refusal.value.error_code) == (status, code)


def test_a_global_id_counts_versions_and_a_content_id_contents(server: SchemaRegistryServer) -> None:
    asked = registry(server.apicurio_url)
    first = asked.registered("a-value", FIRST)
    second = asked.registered("b-value", FIRST)
    assert (first.id, second.id) == (1, 1)
    assert (first.global_id, second.global_id) == (1, 2)
    third = asked.registered("a-value", SECOND)
    refs = [SchemaRef("globalId", "3"), SchemaRef("contentId", "1"), SchemaRef("globalId", "9")]
    found = asked.fetched(refs)
    assert third.global_id == 3
    assert {ref: json.loads(text) for ref, text in found.items()} == {
        refs[0]: json.loads(SECOND),
        refs[1]: json.loads(FIRST),
    }


def test_what_was_fetched_works_while_the_server_is_down(server: SchemaRegistryServer) -> None:
    asked = registry(server.url)
    asked.registered("a-value", FIRST)
    assert set(asked.fetched(by_id(1))) == set(by_id(1))
    requests = len(server.requests)
    server.stop()
    assert set(registry(server.url).fetched(by_id(1))) == set(by_id(1))
    with pytest.raises(ConnectError, match=r"does not answer .schema id 2.*No message was skipped"):
        asked.fetched(by_id(1, 2))
    server.start()
    assert asked.registered("a-value", SECOND).id == 2
    assert set(asked.fetched(by_id(1, 2, 3))) == set(by_id(1, 2))
    assert len([r for r in server.requests[requests:] if r.startswith("GET /schemas/ids/1")]) == 0


def test_an_unknown_id_is_asked_for_again(server: SchemaRegistryServer) -> None:
    asked = registry(server.url)
    assert asked.fetched(by_id(1)) == {}
    server.store.register("a-value", FIRST)
    assert set(asked.fetched(by_id(1))) == set(by_id(1))


def test_a_guid_names_a_schema_too(server: SchemaRegistryServer) -> None:
    asked = registry(server.url)
    guid = asked.registered("a-value", FIRST).guid
    assert guid is not None
    ref = SchemaRef("guid", guid)
    assert json.loads(asked.fetched([ref])[ref]) == json.loads(FIRST)
    assert asked.fetched([SchemaRef("guid", "0" * 8 + "-0000-0000-0000-" + "0" * 12)]) == {}


def test_a_wrong_path_is_no_unknown_id(server: SchemaRegistryServer) -> None:
    with pytest.raises(ConnectError, match="refused schema id 1"):
        registry(f"{server.url}/somewhere").fetched(by_id(1))


def test_credentials_reach_the_server_and_no_message() -> None:
    with SchemaRegistryServer(user_info="me:s3cret") as server:
        asked = registry(server.url, **{"registry.basic.auth.user.info": "me:s3cret"})
        assert asked.registered("a-value", FIRST).id == 1
        with pytest.raises(ConnectError, match="HTTP 401") as refusal:
            registry(server.url.replace("//", "//me:wr0ng@")).fetched(by_id(1))
        assert "wr0ng" not in str(refusal.value)
        options = RegistrySettings.parse(
            {"registry": server.url.replace("//", "//me:wr0ng@"), "registry.basic.auth.user.info": "me:s3cret"},
            owner="the test",
        )
        shown = f"{options!r} {asked!r}"
        assert "wr0ng" not in shown and "s3cret" not in shown


def test_an_incompatible_schema_is_refused_with_the_reason(server: SchemaRegistryServer) -> None:
    asked = registry(server.url)
    asked.registered("a-value", FIRST)
    with pytest.raises(ConnectError, match="incompatible with an earlier schema: /x: int can't be read as string"):
        asked.registered("a-value", OTHER)


def test_a_mapping_may_be_values_or_text_or_a_file(tmp_path: Path) -> None:
    mapping = {1: json.loads(FIRST), "2": SECOND}
    text = json.dumps(mapping)
    file = tmp_path / "schemas.json"
    file.write_text(text)
    for given in (mapping, text, str(file)):
        asked = registry_given(given)
        assert {r.value: json.loads(t) for r, t in asked.fetched(by_id(1, 2, 3)).items()} == {
            "1": json.loads(FIRST),
            "2": json.loads(SECOND),
        }
        assert asked.registered("any-value", SECOND).id == 2
        with pytest.raises(OptionError, match="has no schema for subject 'any-value'"):
            asked.registered("any-value", OTHER)


@pytest.mark.parametrize("given", ["nowhere.json", "[1]", "{", {"x": FIRST}, 5])
def test_what_is_no_registry_is_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="Option 'registry' can't be"):
        RegistrySettings.parse({"registry": given}, owner="the test")


def test_a_registry_is_asked_for_where_there_is_none() -> None:
    with pytest.raises(OptionError, match="Option 'registry' of the test is missing"):
        registry_of(RegistrySettings.parse({}, owner="the test"), "the test")


@pytest.mark.parametrize(
    ("reader", "writer", "fits"),
    [
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('["null","int"]', '"int"', True),
        ('"int"', '["null","int"]', False),
        ('{"type":"array","items":"double"}', '{"type":"array","items":"float"}', True),
        ('{"type":"map","values":"int"}', '{"type":"map","values":"string"}', False),
        (record(("x", "int"), ("y", ["null", "string"])), record(("x", "int")), True),
        (record(("x", "int"), ("y", "string")), record(("x", "int")), False),
        (record(("x", "int")), record(("x", "int"), ("y", "string")), True),
        (record(("x", "int"), name="A"), record(("x", "int"), name="B"), False),
    ],
)
def test_compatibility_is_that_of_avros_specification(reader: str, writer: str, fits: bool) -> None:
    assert (problems(json.loads(reader), json.loads(writer)) == []) is fits
