"""Settings of Kafka's Java producer in the words of librdkafka, where it has a word for each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAME = (
    "batch.size",
    "client.dns.lookup",
    "client.id",
    "compression.type",
    "connections.max.idle.ms",
    "delivery.timeout.ms",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.mechanism",
    "security.protocol",
)
_NAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "ssl.key.password": "ssl.key.password",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
_OURS = frozenset(("acks", "bootstrap.servers", "enable.idempotence", "partitioner.ignore.keys"))
"""Promised by the sink, whatever is given."""
_NOT_OF_PRODUCERS = frozenset(("default.api.timeout.ms", "max.block.ms"))
"""Concern how long is asked for topics."""
_MECHANISMS = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
_TOKENS = "OAUTHBEARER"
_TOKEN_MODULE = "oauthbearer.OAuthBearerLoginModule"
_TOKEN_HANDLERS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
_EXTENSION = "extension_"
_VALUE = r"""(?:"[^"\\]*"|'[^'\\]*')"""
_JAAS = re.compile(
    rf"\s*org\.apache\.kafka\.common\.security\.(\w+\.\w+)\s+required((?:\s+\w+\s*=\s*{_VALUE})+)\s*;\s*"
)
_GIVEN = re.compile(rf"(\w+)\s*=\s*({_VALUE})")
_STORES = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}


class NotTranslated(Exception):
    """librdkafka has no word for a setting. The text is the end of a sentence, and shows no setting's value."""


def translated(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings for librdkafka, with the defaults of Kafka's Java producer where they promise something.

    Args:
        settings: by Kafka's names, with `bootstrap.servers`.

    Raises:
        NotTranslated: one has no counterpart.
    """
    found = {
        "bootstrap.servers": settings["bootstrap.servers"],
        "message.max.bytes": "1048576",
        "delivery.timeout.ms": "120000",
        "linger.ms": "20",
        # Not what Kafka's producer buffers by default, 32 MB, which a worker fills faster than it is emptied.
        "queue.buffering.max.kbytes": "65536",
        "acks": "all",
        "enable.idempotence": "true",
        "partitioner": "murmur2_random",
    }
    rest = {name: str(value).strip() for name, value in settings.items() if name not in _OURS | _NOT_OF_PRODUCERS}
    for take in (_buffers, _login, _stores):
        found |= take(rest)
    for name, value in rest.items():
        ours = name if name in _SAME else _NAMED.get(name)
        if ours is None:
            raise NotTranslated(f"librdkafka does not know 'kafka.{name}'")
        found[ours] = value
    return found


def _buffers(rest: dict[str, str]) -> dict[str, str]:
    given = rest.pop("buffer.memory", "")
    if not given:
        return {}
    if not given.isdigit():
        raise NotTranslated("'kafka.buffer.memory' is no number")
    return {"queue.buffering.max.kbytes": str(max(1, int(given) // 1024))}


def _login(rest: dict[str, str]) -> dict[str, str]:
    protocol = rest.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL_"):
        rest.pop("sasl.mechanism", None)
        rest.pop("sasl.jaas.config", None)
        return {}
    mechanism = rest.get("sasl.mechanism", "GSSAPI")
    if mechanism == _TOKENS:
        return _token(rest)
    module = _MECHANISMS.get(mechanism)
    if module is None:
        raise NotTranslated("of 'kafka.sasl.mechanism' only PLAIN, SCRAM and OAUTHBEARER are the same in librdkafka")
    given = _said_to(module, rest)
    if set(given) != {"username", "password"}:
        raise NotTranslated("'kafka.sasl.jaas.config' says more than a user and a password, or says them otherwise")
    return {"sasl.username": given["username"], "sasl.password": given["password"]}


def _token(rest: dict[str, str]) -> dict[str, str]:
    """A token of OAuth 2's client credentials, which librdkafka asks for itself."""
    handler = rest.pop("sasl.login.callback.handler.class", "")
    address = rest.pop("sasl.oauthbearer.token.endpoint.url", "")
    if handler not in _TOKEN_HANDLERS or not address.startswith(("http://", "https://")):
        raise NotTranslated("of OAUTHBEARER only a token from 'kafka.sasl.oauthbearer.token.endpoint.url' is the same")
    given = _said_to(_TOKEN_MODULE, rest)
    extensions = {name[len(_EXTENSION) :]: given.pop(name) for name in [*given] if name.startswith(_EXTENSION)}
    if not {"clientId", "clientSecret"} <= set(given) <= {"clientId", "clientSecret", "scope"}:
        raise NotTranslated("'kafka.sasl.jaas.config' says more than an id, a secret and a scope, or not these")
    found = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": address,
        "sasl.oauthbearer.client.id": given["clientId"],
        "sasl.oauthbearer.client.secret": given["clientSecret"],
        "sasl.oauthbearer.scope": given.get("scope", ""),
        "sasl.oauthbearer.extensions": ",".join(f"{name}={value}" for name, value in extensions.items()),
    }
    return {name: value for name, value in found.items() if value}


def _said_to(module: str, rest: dict[str, str]) -> dict[str, str]:
    """What 'sasl.jaas.config' says to Kafka's login module of this name; nothing where it says it to another one."""
    found = _JAAS.fullmatch(rest.pop("sasl.jaas.config", ""))
    return {name: value[1:-1] for name, value in _GIVEN.findall(found[2])} if found and found[1] == module else {}


def _stores(rest: dict[str, str]) -> dict[str, str]:
    """Where keys and certificates are; librdkafka reads PEM, and not Java's own stores."""
    found: dict[str, str] = {}
    for store, names in _STORES.items():
        kind, location = rest.pop(f"{store}.type", "JKS"), rest.pop(f"{store}.location", "")
        if not location and f"{store}.password" not in rest and not any(name.startswith(f"{store}.") for name in rest):
            continue
        if kind.upper() != "PEM":
            raise NotTranslated(f"librdkafka reads 'kafka.{store}.*' only as PEM")
        if location:
            found |= dict.fromkeys(names, location)
    algorithm = rest.pop("ssl.endpoint.identification.algorithm", None)
    if algorithm is not None:
        found["ssl.endpoint.identification.algorithm"] = algorithm.lower() or "none"
    return found
