"""Rule: settings of Kafka's Java producer mean the same in librdkafka, or are not handed to it."""

from __future__ import annotations

import pytest

from headrace.sinks.kafka.delivery import NotTranslated, translated

SERVERS = {"bootstrap.servers": "k:1"}
JAAS = 'org.apache.kafka.common.security.{} required username="u" password="p;\' q";'
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
TOKENS = "org.apache.kafka.common.security.oauthbearer"
TOKEN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": f"{TOKENS}.OAuthBearerLoginCallbackHandler",
    "sasl.oauthbearer.token.endpoint.url": "https://login/token",
}
CREDENTIALS = f'{TOKENS}.OAuthBearerLoginModule required clientId="u" clientSecret="p;\' q"{{}};'


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"acks": "all", "enable.idempotence": "true", "partitioner": "murmur2_random"}),
        ({"acks": "-1", "enable.idempotence": "true"}, {"acks": "all", "enable.idempotence": "true"}),
        ({}, {"message.max.bytes": "1048576", "delivery.timeout.ms": "120000"}),
        ({"max.request.size": "5"}, {"message.max.bytes": "5"}),
        ({"buffer.memory": "1048576"}, {"queue.buffering.max.kbytes": "1024"}),
        ({"compression.type": "zstd", "linger.ms": "7"}, {"compression.type": "zstd", "linger.ms": "7"}),
        (
            {**SASL, "sasl.jaas.config": JAAS.format("plain.PlainLoginModule")},
            {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p;' q"},
        ),
        (
            {
                **SASL,
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": JAAS.format("scram.ScramLoginModule"),
            },
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u"},
        ),
        (
            {**SASL, "sasl.jaas.config": JAAS.format("plain.PlainLoginModule").replace("p;' q", "p").replace('"', "'")},
            {"sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {**TOKEN, "sasl.jaas.config": CREDENTIALS.format("")},
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://login/token",
                "sasl.oauthbearer.client.id": "u",
                "sasl.oauthbearer.client.secret": "p;' q",
            },
        ),
        (
            {**TOKEN, "sasl.jaas.config": CREDENTIALS.format(' scope="s" extension_pool="7" extension_cluster="c"')},
            {"sasl.oauthbearer.scope": "s", "sasl.oauthbearer.extensions": "pool=7,cluster=c"},
        ),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/a.pem"},
            {"security.protocol": "SSL", "ssl.ca.location": "/a.pem"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": "K", "ssl.keystore.certificate.chain": "C"},
            {"ssl.key.pem": "K", "ssl.certificate.pem": "C"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
    ],
)
def test_settings_have_a_counterpart(given: dict[str, str], expected: dict[str, str]) -> None:
    found = translated({**SERVERS, **given})
    assert expected.items() <= found.items()
    assert "sasl.jaas.config" not in found


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"interceptor.classes": "a.B"}, "does not know 'kafka.interceptor.classes'"),
        ({"Linger.ms": "5"}, "does not know 'kafka.Linger.ms'"),
        ({"security.protocol": "SASL_SSL"}, "only PLAIN, SCRAM and OAUTHBEARER"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "only PLAIN, SCRAM and OAUTHBEARER"),
        ({**TOKEN, "sasl.jaas.config": CREDENTIALS.format(' ssl.protocol="a"')}, "says more than an id, a secret"),
        ({**TOKEN, "sasl.jaas.config": f"{TOKENS}.OAuthBearerLoginModule required;"}, "says more than an id, a secret"),
        ({**TOKEN, "sasl.oauthbearer.token.endpoint.url": "file:///token"}, "only a token from"),
        ({**TOKEN, "sasl.login.callback.handler.class": "a.B"}, "only a token from"),
        (SASL, "says more than a user and a password"),
        ({**SASL, "sasl.jaas.config": JAAS.format("scram.ScramLoginModule")}, "says more than a user"),
        ({**SASL, "sasl.jaas.config": JAAS.format("plain.PlainLoginModule") * 2}, "says more than a user"),
        ({"ssl.truststore.location": "/a.jks"}, "'kafka.ssl.truststore.*' only as PEM"),
        ({"ssl.keystore.location": "/a.p12", "ssl.keystore.type": "PKCS12"}, "'kafka.ssl.keystore.*' only as PEM"),
        ({"buffer.memory": "much"}, "is no number"),
    ],
)
def test_a_setting_without_a_counterpart_is_named_and_not_shown(given: dict[str, str], reason: str) -> None:
    with pytest.raises(NotTranslated) as it:
        translated({**SERVERS, **given})
    assert reason in str(it.value)
    assert "p;' q" not in str(it.value)
