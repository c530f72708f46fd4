"""Rule: a bucket is reached by pyarrow as Hadoop's `s3a` is told, or Spark writes its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.sinks.lake import s3
from headrace.sinks.lake.s3 import of_hadoop, of_iceberg, storage_of
from headrace.sinks.lake.storage import Folder, Location, Storage

PROVIDERS = (
    "\n    org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,\n    "
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,\n    "
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,\n    "
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider\n  "
)
"""Hadoop's own."""
KEYS = {"access.key": "k", "secret.key": "s"}
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
AWS = {"region": "eu-central-1"}


def settings(given: dict[str, str]) -> Any:
    own = {"aws.credentials.provider": PROVIDERS, "endpoint.region": "eu-central-1", "connection.ssl.enabled": "true"}
    return {f"fs.s3a.{name}": value for name, value in {**own, **given}.items()}.get


def at(host: str, scheme: str, *, by_path: bool, region: str = "eu-central-1") -> dict[str, Any]:
    return {
        "endpoint_override": host,
        "scheme": scheme,
        "force_virtual_addressing": not by_path,
        "region": region,
    }


LOGINS: list[tuple[dict[str, str], dict[str, Any]]] = [
    (KEYS, {"access_key": "k", "secret_key": "s", **AWS}),
    ({**KEYS, "session.token": "t"}, {"access_key": "k", "secret_key": "s", "session_token": "t", **AWS}),
    # What the machine has, which pyarrow looks for in the same places.
    ({}, AWS),
    ({**KEYS, "aws.credentials.provider": "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"}, AWS),
    (
        {"aws.credentials.provider": "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"},
        AWS,
    ),
    (
        {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        {"anonymous": True, **AWS},
    ),
    ({"bucket.lake.access.key": "own", **KEYS}, {"access_key": "own", "secret_key": "s", **AWS}),
    ({"bucket.other.access.key": "own", **KEYS}, {"access_key": "k", "secret_key": "s", **AWS}),
    ({"endpoint": "s3.eu-west-1.amazonaws.com", "endpoint.region": ""}, {"region": "eu-west-1"}),
    ({"endpoint": "https://s3.amazonaws.com"}, AWS),
    ({"endpoint": "http://store:9000", "path.style.access": "true"}, at("store:9000", "http", by_path=True)),
    ({"endpoint": "store", "endpoint.region": ""}, at("store", "https", by_path=False, region="us-east-1")),
    ({"endpoint": "store", "connection.ssl.enabled": "false"}, at("store", "http", by_path=False)),
    ({"requester.pays.enabled": "false", "acl.default": " "}, AWS),
]


@pytest.mark.parametrize("given, login", LOGINS)
def test_a_login_is_that_of_s3a(given: dict[str, str], login: dict[str, Any]) -> None:
    found = of_hadoop(settings(given), "s3a", "lake")
    assert isinstance(found, Storage)
    assert json.loads(found.login) == login


REFUSED = (
    ({"aws.credentials.provider": SIMPLE}, "no login is set for its bucket (fs.s3a.access.key)"),
    (
        {"aws.credentials.provider": f"{SIMPLE},org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"},
        "the login of AssumedRoleCredentialProvider (fs.s3a.aws.credentials.provider) is Spark's alone",
    ),
    ({**KEYS, "encryption.algorithm": "SSE-KMS"}, "fs.s3a.encryption.algorithm is set"),
    ({**KEYS, "bucket.lake.encryption.algorithm": "SSE-C"}, "fs.s3a.encryption.algorithm is set"),
    ({**KEYS, "acl.default": "BucketOwnerFullControl"}, "fs.s3a.acl.default is set"),
    ({**KEYS, "requester.pays.enabled": "true"}, "fs.s3a.requester.pays.enabled is set"),
    ({**KEYS, "endpoint.fips": "true"}, "fs.s3a.endpoint.fips is set"),
    ({**KEYS, "impl": "com.platform.S3AFileSystem"}, "it is reached by S3AFileSystem (fs.s3a.impl)"),
    ({**KEYS, "proxy.host": "proxy"}, "fs.s3a.proxy.host is set"),
)


@pytest.mark.parametrize("given, reason", REFUSED)
def test_what_files_of_ours_would_not_honour_is_written_by_spark(given: dict[str, str], reason: str) -> None:
    assert of_hadoop(settings(given), "s3a", "lake") == reason


OF_CLIENT = {"client.region": "eu-central-1"}
OF_ICEBERG: tuple[tuple[dict[str, str], dict[str, Any] | str], ...] = (
    (OF_CLIENT, AWS),
    (
        {
            "client.region": "eu-central-1",
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
            "s3.session-token": "t",
        },
        {"access_key": "k", "secret_key": "s", "session_token": "t", **AWS},
    ),
    (
        {"s3.endpoint": "http://store:9000/", "s3.path-style-access": "true", **OF_CLIENT},
        at("store:9000", "http", by_path=True),
    ),
    ({"s3.endpoint": "https://store", "s3.sse.type": "none"}, at("store", "https", by_path=False, region="us-east-1")),
    ({"s3.sse.type": "kms"}, "s3.sse.type is set"),
    ({"s3.remote-signing-enabled": "true"}, "s3.remote-signing-enabled is set"),
    ({"client.assume-role.arn": "arn"}, "client.assume-role.arn is set"),
    ({"client.credentials-provider": "my.Provider"}, "client.credentials-provider is set"),
    ({"s3.write.tags.owner": "me"}, "s3.write.tags.owner is set"),
)


@pytest.mark.parametrize("properties, login", OF_ICEBERG)
def test_a_login_is_that_of_a_catalogue_of_iceberg(properties: dict[str, str], login: dict[str, Any] | str) -> None:
    found = of_iceberg(properties, "lake")
    assert login == (json.loads(found.login) if isinstance(found, Storage) else found)


def test_another_scheme_is_known_where_s3a_reaches_it() -> None:
    own = settings(KEYS)
    assert of_hadoop(own, "s3", "lake") == "it is reached by no file system (fs.s3.impl)"
    named = {"fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    assert of_hadoop(lambda name: named.get(name) or own(name), "s3", "lake") == of_hadoop(own, "s3a", "lake")


def test_a_login_is_shown_nowhere() -> None:
    found = of_hadoop(settings({"access.key": "k", "secret.key": "hush"}), "s3a", "lake")
    assert isinstance(found, Storage)
    assert "hush" not in repr(found) + str(Folder("lake/t", found)) + found.fingerprint


def test_a_bucket_that_does_not_answer_is_not_asked_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Silent:
        def get_file_info(self, path: str) -> None:
            asked.append(path)
            raise OSError("no answer")

    monkeypatch.setattr(s3, "_failures", {})
    monkeypatch.setattr(Storage, "system", Silent())
    for _ in range(3):
        found = storage_of(
            Location.of_uri("s3a://lake/t"), lambda at, bucket: of_hadoop(settings(KEYS), at.scheme, bucket)
        )
        assert found == "Python does not reach its bucket (no answer)"
    assert asked == ["lake/t"]


PLACES = (
    ("file:/tmp/a%20b/", Location("file", "/tmp/a b")),
    ("file:///tmp/t", Location("file", "/tmp/t")),
    ("s3a://lake/a%20b/c%2520d", Location("s3a", "lake/a b/c%20d")),
)


@pytest.mark.parametrize("uri, location", PLACES)
def test_a_uri_names_a_place(uri: str, location: Location) -> None:
    assert Location.of_uri(uri) == location


NAMES = (
    ("/tmp/a%20b", "file", Location("file", "/tmp/a%20b")),
    ("/tmp/t", "hdfs", Location("hdfs", "/tmp/t")),
    ("file:/tmp/t", "hdfs", Location("file", "/tmp/t")),
    ("file:///tmp/t/", "hdfs", Location("file", "/tmp/t")),
    ("s3://lake/a%20b", "file", Location("s3", "lake/a%20b")),
)


@pytest.mark.parametrize("name, default, location", NAMES)
def test_a_name_without_escapes_names_a_place(name: str, default: str, location: Location) -> None:
    assert Location.of_name(name, default) == location


def test_files_are_written_read_and_deleted(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.storage.write(folder.location("a"), b"0123456789")
    assert folder.storage.read(folder.location("a"), 3, 4) == b"3456"
    assert (folder.storage.size(folder.location("a")), folder.storage.size(folder.location("b"))) == (10, None)
    assert folder.storage.names(str(tmp_path)) == ["a"]
    folder.storage.delete(folder.location("a"))
    folder.storage.delete(folder.location("a"))
    with pytest.raises(FileNotFoundError, match="a"):
        folder.storage.read(folder.location("a"))
