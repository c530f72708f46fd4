"""Why Kafka's Java client could not do what it was asked: in plain words, with what to do about it.

Its exceptions are looked at where they are objects of a JVM in reach, and in what Spark prints of them. No text of
theirs is repeated in which the value of a setting can stand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_PRINTED = re.compile(
    r"^\s*(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error))(?::[ \t]*(.*))?$", re.MULTILINE
)
_KAFKA = "org.apache.kafka."
_OF_KAFKA = f"{_KAFKA}common.errors."


@dataclass(frozen=True)
class Link:
    """One exception of a chain.

    Args:
        kind: the name of its class, with the package.
        text: its message.
    """

    kind: str
    text: str

    @property
    def name(self) -> str:
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True)
class Reason:
    """Why Kafka can't be used.

    Args:
        sentence: what is wrong, after "Kafka at ..." and without an end.
        remedy: what to do about it.
    """

    sentence: str
    remedy: str


_LOGIN = Reason(
    "refuses the login",
    "Check the user and the password in 'kafka.sasl.jaas.config', and that 'kafka.sasl.mechanism' is the one that "
    "this user is made for.",
)
_MECHANISM = Reason(
    "does not take the mechanism of the login there",
    "Set 'kafka.sasl.mechanism' to one that this listener of the broker has.",
)
_TOKEN = Reason(
    "can't be used, because the client got no token",
    "Check the address, the id and the secret: 'kafka.sasl.oauthbearer.token.endpoint.url' and "
    "'kafka.sasl.jaas.config'.",
)
_TICKET = Reason(
    "can't be used, because the client has no Kerberos ticket for it",
    "Check principal and keytab in 'kafka.sasl.jaas.config' (or run kinit), and 'kafka.sasl.kerberos.service.name'.",
)
_UNTRUSTED = Reason(
    "has a certificate that is not trusted here",
    "Name the file of the authority that signed it: 'kafka.ssl.truststore.type: PEM' and "
    "'kafka.ssl.truststore.location'.",
)
_EXPIRED = Reason("has a certificate that is not valid now", "Renew it, and check this machine's clock.")
_OTHER_HOST = Reason(
    "has a certificate for another host",
    "Name the broker in 'bootstrap_servers', and in its advertised.listeners, as its certificate does.",
)
_NO_CERTIFICATE = Reason(
    "does not let this client in: it wants a certificate that it trusts",
    "Give the client's own: 'kafka.ssl.keystore.type: PEM' and 'kafka.ssl.keystore.location'.",
)
_PROTOCOL = Reason(
    "does not speak the protocol that the client was told",
    "Set 'kafka.security.protocol' as the listener has it: SSL, SASL_SSL, SASL_PLAINTEXT or PLAINTEXT.",
)
_SILENT = Reason(
    "takes connections and answers nothing",
    "Check that 'kafka.security.protocol' and 'kafka.sasl.mechanism' are those of the listener, and that the addresses "
    "in the broker's advertised.listeners can be reached from here.",
)
_FILE = Reason(
    "can't be used, because a file of its settings can't be read", "Check the paths in the 'kafka.*' settings."
)
_STORE = Reason(
    "can't be used, because the client can't read its certificates",
    "Check 'kafka.ssl.truststore.type' and 'kafka.ssl.keystore.type': PEM for text, JKS or PKCS12 for Java's own "
    "files.",
)
_CLASS = Reason(
    "can't be used, because a class that its settings name is not there",
    "Check the class names in the 'kafka.*' settings; a jar of your own goes into spark.jars.",
)


def _named(*names: str) -> Callable[[Link], bool]:
    return lambda link: link.name in names


def _says(name: str, *texts: str) -> Callable[[Link], bool]:
    return lambda link: link.name == name and any(text in link.text for text in texts)


_REASONS: Sequence[tuple[Callable[[Link], bool], Reason]] = (
    (_named("UnsupportedSaslMechanismException", "IllegalSaslStateException"), _MECHANISM),
    (_says("SaslException", "GSS"), _TICKET),
    (_named("GSSException", "KrbException"), _TICKET),
    (_says("SaslAuthenticationException", "GSS", "Kerberos"), _TICKET),
    (_named("SaslAuthenticationException"), _LOGIN),
    (_says("LoginException", "oken", "oauthbearer"), _TOKEN),
    (_named("LoginException"), _TICKET),
    (_named("CertificateExpiredException", "CertificateNotYetValidException"), _EXPIRED),
    (_says("CertificateException", "No name matching", "No subject alternative"), _OTHER_HOST),
    (_named("SunCertPathBuilderException", "CertPathBuilderException", "ValidatorException"), _UNTRUSTED),
    (_says("SSLHandshakeException", "Received fatal alert: "), _NO_CERTIFICATE),
    (_named("SSLException", "SSLHandshakeException"), _PROTOCOL),
    (_says("TimeoutException", "thread has exited"), _PROTOCOL),
    (_says("TimeoutException", "waiting for a node assignment", "while fetching topic metadata"), _SILENT),
    (_says("KafkaException", "Failed to load"), _STORE),
    (_says("InvalidConfigurationException", "PEM"), _STORE),
)
"""In the order in which they are looked for: the first that any link fits."""
_OF_A_CLIENT_ALONE: Sequence[tuple[Callable[[Link], bool], Reason]] = (
    (_named("NoSuchFileException", "FileNotFoundException", "AccessDeniedException"), _FILE),
    *_REASONS,
    # What a client takes for the length of a message is the beginning of another protocol.
    (_named("OutOfMemoryError"), _PROTOCOL),
    (_named("ClassNotFoundException", "NoClassDefFoundError"), _CLASS),
    (_says("ConfigException", "could not be found"), _CLASS),
)
"""Those of Spark's would mean something else."""
_TRANSIENT = (
    *("BrokerNotAvailable", "Disconnect", "KafkaStorage", "LeaderNotAvailable", "Network", "NotEnoughReplicas"),
    *("NotEnoughReplicasAfterAppend", "NotLeaderOrFollower", "ThrottlingQuotaExceeded", "Timeout"),
)
"""Kafka's transient exceptions, without their ending."""


def reason_in(links: Sequence[Link]) -> Reason | None:
    """Why Kafka can't be used, where these exceptions of its client are a known reason."""
    return _first(_OF_A_CLIENT_ALONE, links)


def printed_reason(text: str) -> Reason | None:
    """Why Kafka can't be used, where a stack trace that Spark printed says so; None where it says anything else."""
    links = [Link(kind, message or "") for kind, message in _PRINTED.findall(text)]
    return _first(_REASONS, links) if any(link.kind.startswith(_KAFKA) for link in links) else None


def printed_is_transient(text: str) -> bool:
    """Whether a stack trace that Spark printed names a transient exception of Kafka's."""
    kinds = {f"{_OF_KAFKA}{name}Exception" for name in _TRANSIENT}
    return any(kind in kinds for kind, _ in _PRINTED.findall(text))


def _first(reasons: Sequence[tuple[Callable[[Link], bool], Reason]], links: Sequence[Link]) -> Reason | None:
    return next((reason for fits, reason in reasons if any(map(fits, links))), None)


def links_of(error: Exception) -> list[Link]:
    """The chain of Java's exceptions after a failure, the last cause at the end; empty for one of Python's.

    While Spark runs, PySpark turns each of Java's into one of its own, for which it asks Spark's JVM, also about an
    object of another JVM. Whatever comes of that, Java's exception is the one that was handled.
    """
    failure: BaseException | None = error
    while failure is not None and not hasattr(failure, "java_exception"):
        failure = failure.__context__
    throwable: Any = getattr(failure, "java_exception", None)
    links = []
    while throwable is not None:
        links.append(Link(str(throwable.getClass().getName()), str(throwable.getMessage() or "")))
        throwable = throwable.getCause()
    return links


def reason_of(error: Exception) -> str:
    """The name of the Java exception at the bottom of a failure."""
    links = links_of(error)
    return links[-1].name if links else type(error).__name__


def said_by(error: Exception) -> str:
    """Kafka's word for what went wrong. Its text is added only where no setting's value can stand in it."""
    links = links_of(error)
    text = " ".join(links[-1].text.split()) if links and links[-1].kind.startswith(_OF_KAFKA) else ""
    return f"{reason_of(error)}, {text.rstrip('.')}." if text else f"{reason_of(error)}."
