"""Logins to S3: the settings of Hadoop's `s3a` and of Iceberg's `S3FileIO`, translated for pyarrow.

Where pyarrow lacks a login, or would ignore a setting, Spark writes the files.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from headrace.sinks.folder import absolute
from headrace.sinks.lake.storage import LOCAL, Location, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ELSEWHERE = "it is neither in a local folder nor in S3"
NOT_HERE = "its folder is not on this machine"
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_PREFIX = "fs.s3a."
_SECRETS = ("access.key", "secret.key", "session.token")
_KEYS = re.compile(r"\.(Simple|Temporary)AWSCredentialsProvider$")
_ANONYMOUS = re.compile(r"\.Anonymous(AWS)?CredentialsProvider$")
_SURROUNDINGS = re.compile(
    r"\.((Environment|EnvironmentVariable|IAMInstance|InstanceProfile|Container|Default|Profile|WebIdentityToken"
    r"|WebIdentityTokenFile)CredentialsProvider|EC2ContainerCredentialsProviderWrapper"
    r"|DefaultAWSCredentialsProviderChain)$"
)
"""Logins that come from a machine's surroundings: its environment, a file of the user, the service that it runs in."""
_NOT_HONOURED = (
    "encryption.algorithm",
    "server-side-encryption-algorithm",
    "acl.default",
    "create.storage.class",
    "create.header",
    "accesspoint.arn",
    "proxy.host",
    "delegation.token.binding",
    "custom.signers",
    "signing-algorithm",
)
_SECRETS_OF_ICEBERG = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
_NOT_HONOURED_OF_ICEBERG = (
    "s3.sse.",
    "s3.acl",
    "s3.remote-signing-enabled",
    "s3.access-points.",
    "s3.access-grants.",
    "s3.write.",
    "s3.client-factory-impl",
    "client.factory",
    "client.credentials-provider",
    "client.refresh-credentials-endpoint",
    "client.assume-role.",
    "http-client.proxy",
)
_OF_AWS = re.compile(r"(s3([.-][a-z0-9-]+)?\.amazonaws\.com)?")
"""Endpoints that the region says too."""
_SECONDS = 300
"""After a bucket could not be reached, it is tried again so much later."""
_failures: dict[tuple[str, str], tuple[float, str]] = {}
"""By login and bucket: when the bucket was asked last, and why it was not reached; empty where it was."""


def storage_of(location: Location, reach: Callable[[Location, str], Storage | str]) -> Storage | str:
    """How Python reaches the files of a table; or why it doesn't, as the end of a sentence.

    Args:
        location: its folder.
        reach: says how a place in a bucket is reached (`of_hadoop`, `of_iceberg`).
    """
    if location.is_local:
        # The folder of a new table's data files is made with the first of them.
        return LOCAL if Path(location.path).parent.is_dir() else NOT_HERE
    if location.bucket is None:
        return ELSEWHERE
    storage = reach(location, location.bucket)
    return storage if isinstance(storage, str) else _reached(storage, location)


def of_hadoop(setting: Callable[[str], str | None], scheme: str, bucket: str) -> Storage | str:
    """How pyarrow reaches a bucket as `s3a` does; or why it can't, as the end of a sentence.

    Args:
        setting: looks up a setting of Hadoop by its name; None where it is not set.
        scheme: by which Hadoop finds the file system that reaches it.
        bucket: its name. What is set for it alone goes before what is set for all.
    """
    system = setting(f"fs.{scheme}.impl") or (_S3A if scheme == "s3a" else "")
    if system != _S3A:
        # A platform's own has a login and an encryption of its own.
        return f"it is reached by {system.rpartition('.')[2] or 'no file system'} (fs.{scheme}.impl)"

    def of(name: str) -> str:
        return (setting(f"{_PREFIX}bucket.{bucket}.{name}") or setting(_PREFIX + name) or "").strip()

    for name in _NOT_HONOURED:
        if of(name):
            return f"{_PREFIX}{name} is set"
    for name in ("requester.pays.enabled", "endpoint.fips"):
        if of(name) == "true":
            return f"{_PREFIX}{name} is set"
    login = _login(of)
    if isinstance(login, str):
        return login
    endpoint = of("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'http' if of('connection.ssl.enabled') == 'false' else 'https'}://{endpoint}"
    return _at(login, endpoint, of("endpoint.region"), bucket, by_path=of("path.style.access") == "true")


def of_iceberg(properties: Mapping[str, str], bucket: str) -> Storage | str:
    """How pyarrow reaches a bucket as Iceberg's `S3FileIO` does; or why it can't, as the end of a sentence.

    Args:
        properties: what the catalogue says of it.
        bucket: its name.
    """
    for name, value in properties.items():
        if name.startswith(_NOT_HONOURED_OF_ICEBERG) and value not in ("", "false", "none"):
            return f"{name} is set"
    key, secret, token = (properties.get(name, "") for name in _SECRETS_OF_ICEBERG)
    login: dict[str, Any] = {"access_key": key, "secret_key": secret} if key and secret else {}
    if login and token:
        login["session_token"] = token
    endpoint, by_path = properties.get("s3.endpoint", ""), properties.get("s3.path-style-access") == "true"
    return _at(login, endpoint, properties.get("client.region", ""), bucket, by_path=by_path)


def _at(login: dict[str, Any], endpoint: str, region: str, bucket: str, *, by_path: bool) -> Storage | str:
    scheme, _, host = endpoint.rpartition("://")
    if not _OF_AWS.fullmatch(host):
        login["endpoint_override"] = host.rstrip("/")
        login["scheme"] = scheme or "https"
        login["force_virtual_addressing"] = not by_path
        login["region"] = region or "us-east-1"
    elif region:
        login["region"] = region
    elif named := re.fullmatch(r"s3[.-]([a-z0-9-]+)\.amazonaws\.com", host):
        login["region"] = named[1]
    else:
        try:
            login["region"] = _region(bucket)
        except OSError as failure:
            return f"the region of its bucket is not known ({failure})"
    return Storage.s3(login)


def _login(of: Callable[[str], str]) -> dict[str, Any] | str:
    """What the first provider that has one logs in by; or why pyarrow can't."""
    key, secret, token = map(of, _SECRETS)
    providers = of("aws.credentials.provider").replace(",", " ").split()
    for provider in providers:
        if _KEYS.search(provider):
            if key and secret and (token or "Temporary" not in provider):
                return {"access_key": key, "secret_key": secret} | ({"session_token": token} if token else {})
        elif _SURROUNDINGS.search(provider):
            return {}
        elif _ANONYMOUS.search(provider):
            return {"anonymous": True}
        else:
            return f"the login of {provider.rpartition('.')[2]} ({_PREFIX}aws.credentials.provider) is Spark's alone"
    return f"no login is set for its bucket ({_PREFIX}access.key)"


@functools.cache
def _region(bucket: str) -> str:
    """Where a bucket of AWS is, as its server says; one request for each bucket."""
    return str(fs.resolve_s3_region(bucket))


def session_login(spark: SparkSession, folder: str) -> str:
    """The login of a session for a bucket, as `Storage` has it; empty for a folder elsewhere, or where there is none.

    Args:
        spark: the session.
        folder: a folder in the bucket.
    """
    location = Location.of_name(absolute(folder), "file")
    jvm: Any = spark.sparkContext._jvm
    if location.bucket is None or jvm is None:
        return ""
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    storage = of_hadoop(hadoop_settings(jvm, hadoop), location.scheme, location.bucket)
    return storage.login if isinstance(storage, Storage) else ""


def hadoop_settings(jvm: Any, configuration: Any) -> Callable[[str], str | None]:
    """Looks up Hadoop's settings by name, secrets also in its credential providers.

    Args:
        jvm: the driver's.
        configuration: Hadoop's own.
    """

    def setting(name: str) -> str | None:
        if not name.endswith(_SECRETS):
            value = configuration.get(name)
        else:
            letters = configuration.getPassword(name)
            value = None if letters is None else jvm.java.lang.String.valueOf(letters)
        return None if value is None else str(value)

    return setting


def _reached(storage: Storage, location: Location) -> Storage | str:
    """The storage if its bucket answers, else why not. A bucket that answered once is not asked again."""
    bucket = storage.fingerprint, location.bucket or ""
    at, reason = _failures.get(bucket, (0.0, ""))
    if bucket not in _failures or (reason and time.monotonic() - at > _SECONDS):
        try:
            storage.system.get_file_info(location.path)
            reason = ""
        except OSError as failure:
            reason = f"Python does not reach its bucket ({failure})"
        _failures[bucket] = time.monotonic(), reason
    return reason or storage
