"""Rule: what Kafka's Java client says becomes a sentence with a remedy, and shows no setting's value."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from headrace.errors import SinkError
from headrace.sinks.kafka.delivery import KafkaDirectProducer, _Client
from headrace.sinks.kafka.failures import links_of, printed_is_transient, printed_reason, reason_in, reason_of, said_by

SPARK = "org.apache.spark.SparkException: Job aborted due to stage failure.\n\tat a.B(C.java:1)"
FAILED = "org.apache.kafka.common.KafkaException"


class OfJava(Exception):
    """An exception as py4j brings it."""

    def __init__(self, kind: str, text: str = "", cause: OfJava | None = None) -> None:
        super().__init__()
        self.kind, self.text, self.cause = kind, text, cause

    @property
    def java_exception(self) -> OfJava:
        return self

    def getClass(self) -> OfJava:  # noqa: N802
        return self

    def getName(self) -> str:  # noqa: N802
        return self.kind

    def getMessage(self) -> str:  # noqa: N802
        return self.text

    def getCause(self) -> OfJava | None:  # noqa: N802
        return self.cause


def test_the_reason_is_javas_whatever_pyspark_makes_of_it() -> None:
    # PySpark takes an object of Kafka's JVM for the one of Spark's JVM that has the same number.
    try:
        try:
            raise OfJava("org.apache.kafka.common.errors.UnknownTopicOrPartitionException")
        except OfJava:
            raise ValueError("Method exceptionString([class RuntimeConfig]) does not exist") from None
    except ValueError as failure:
        assert reason_of(failure) == "UnknownTopicOrPartitionException"
    assert reason_of(ValueError()) == "ValueError"


def test_only_a_text_of_kafkas_own_errors_is_repeated() -> None:
    config = OfJava("org.apache.kafka.common.config.ConfigException", 'Invalid value password="hush"')
    assert said_by(OfJava("java.util.concurrent.ExecutionException", "no", config)) == "ConfigException."
    fenced = OfJava("org.apache.kafka.common.errors.InvalidTopicException", "Topic 'a b' is\nno name.")
    assert said_by(fenced) == "InvalidTopicException, Topic 'a b' is no name."


@pytest.mark.parametrize(
    ("printed", "sentence", "remedy"),
    [
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username",
            "refuses the login",
            "'kafka.sasl.jaas.config'",
        ),
        (
            "org.apache.kafka.common.errors.UnsupportedSaslMechanismException: Client SASL mechanism 'PLAIN' not",
            "does not take the mechanism",
            "'kafka.sasl.mechanism'",
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: An error: (javax.security.sasl.SaslException: "
            "GSS initiate failed [Caused by GSSException: No valid credentials provided]) occurred",
            "no Kerberos ticket",
            "kinit",
        ),
        (
            "org.apache.kafka.common.KafkaException: Failed to construct\nCaused by: javax.security.auth.login."
            "LoginException: Could not login: the client is being asked for a password, but the Kafka client code",
            "no Kerberos ticket",
            "keytab",
        ),
        (
            "Caused by: javax.security.auth.login.LoginException: An internal error occurred while retrieving token",
            "got no token",
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed\n"
            "Caused by: javax.net.ssl.SSLHandshakeException: PKIX path building failed\n"
            "Caused by: sun.security.provider.certpath.SunCertPathBuilderException: unable to find",
            "not trusted here",
            "kafka.ssl.truststore.type: PEM",
        ),
        (
            "Caused by: javax.net.ssl.SSLHandshakeException: No subject alternative DNS name matching k found\n"
            "Caused by: java.security.cert.CertificateException: No subject alternative DNS name matching k found.",
            "for another host",
            "advertised.listeners",
        ),
        (
            "javax.net.ssl.SSLHandshakeException: PKIX path validation failed\n"
            "Caused by: java.security.cert.CertificateExpiredException: NotAfter: Mon",
            "not valid now",
            "clock",
        ),
        (
            "Caused by: javax.net.ssl.SSLHandshakeException: Received fatal alert: certificate_required",
            "wants a certificate",
            "kafka.ssl.keystore.type: PEM",
        ),
        ("Caused by: javax.net.ssl.SSLException: Unsupported or unrecognized SSL message", "protocol", "SASL_SSL"),
    ],
)
def test_a_stack_trace_has_a_reason_in_plain_words(printed: str, sentence: str, remedy: str) -> None:
    found = printed_reason(f"{SPARK}\nCaused by: {FAILED}\n{printed}\n\tat a")
    assert found is not None
    assert sentence in found.sentence
    assert remedy in found.remedy


@pytest.mark.parametrize(
    "printed",
    [
        f"{SPARK}\nCaused by: org.apache.kafka.common.errors.NotEnoughReplicasException: Messages are rejected",
        # Of another system than Kafka.
        f"{SPARK}\nCaused by: javax.security.auth.login.LoginException: Unable to obtain password",
        f"{SPARK}\nCaused by: {FAILED}\nCaused by: java.lang.OutOfMemoryError: Java heap space",
        f"{SPARK}\nCaused by: {FAILED}\nCaused by: java.io.FileNotFoundException: /tmp/shuffle.index",
    ],
)
def test_other_failures_of_spark_have_no_such_reason(printed: str) -> None:
    assert printed_reason(printed) is None


def test_a_client_alone_says_more() -> None:
    lost = OfJava(FAILED, "", OfJava("java.io.IOException", "", OfJava("java.nio.file.NoSuchFileException", "/a.pem")))
    for failure, sentence in (
        (lost, "a file of its settings"),
        (OfJava("java.lang.OutOfMemoryError", "Java heap space"), "does not speak the protocol"),
        (OfJava(FAILED, "", OfJava("java.lang.ClassNotFoundException", "a.B")), "a class that its settings name"),
    ):
        found = reason_in(links_of(failure))
        assert found is not None
        assert sentence in found.sentence
        assert "/a.pem" not in f"{found}"


@pytest.mark.parametrize(
    ("kind", "is_transient"),
    [
        ("org.apache.kafka.common.errors.TimeoutException", True),
        ("org.apache.kafka.common.errors.NotEnoughReplicasException", True),
        ("org.apache.kafka.common.errors.NotLeaderOrFollowerException", True),
        ("org.apache.kafka.common.errors.InvalidRequiredAcksException", False),
        ("org.apache.kafka.common.errors.TopicAuthorizationException", False),
        ("org.apache.kafka.common.KafkaException", False),
        ("java.util.concurrent.TimeoutException", False),
    ],
)
def test_spark_shows_whether_a_failure_of_kafka_is_transient(kind: str, is_transient: bool) -> None:
    text = f"{SPARK}\nCaused by: {kind}: x has passed since batch creation\n\tat a.B(C.java:1)"
    assert printed_is_transient(text) is is_transient


@pytest.mark.parametrize(
    ("codes", "again"),
    [
        ([KafkaError._MSG_TIMED_OUT], True),
        ([KafkaError._TRANSPORT, KafkaError.NOT_ENOUGH_REPLICAS], True),
        ([KafkaError._MSG_TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED], False),
        ([KafkaError.MSG_SIZE_TOO_LARGE], False),
        ([KafkaError.UNKNOWN], False),
    ],
)
def test_a_batch_that_librdkafka_could_not_send_is_to_be_repeated_only_where_that_helps(
    codes: list[int], again: bool
) -> None:
    client = _Client(KafkaDirectProducer({"bootstrap.servers": "k:9092"}, {}))
    client._failures += map(KafkaError, codes)
    with pytest.raises(SinkError, match="Kafka at k:9092") as caught:
        client._raise_failures(7)
    assert ("You can repeat the batch" in str(caught.value)) is again
