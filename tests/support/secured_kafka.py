"""A Kafka broker with a listener for every way to log in, and a server that gives tokens."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from tests.support.certificates import Authority, Pair
from tests.support.kerberos import Realm

from headrace_emulators.kafka.broker import KafkaBroker

USER, PASSWORD = "cdc", "correct horse battery"
PROTOCOLS = {"TLS": "SSL", "MUTUAL": "SSL", "PLAIN": "SASL_SSL", "SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL"}
KERBEROS = "KERBEROS"
"""The listener that is there with a realm only."""
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM": f"{_SECURITY}.scram.ScramLoginModule",
    "OAUTH": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_MECHANISMS = {"PLAIN": "PLAIN", "SCRAM": "SCRAM-SHA-512", "OAUTH": "OAUTHBEARER"}
_KEYTAB_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_TOKENS = "org.apache.kafka.sasl.oauthbearer.allowed"


class TokenServer:
    """Gives a token to who knows the secret (OAuth 2's client credentials), and keeps its public key in a file.

    Args:
        keys: the file.
    """

    def __init__(self, keys: Path) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        numbers = self._key.public_key().public_numbers()
        parts = {
            name: _base64(n.to_bytes((n.bit_length() + 7) // 8, "big"))
            for name, n in [("n", numbers.n), ("e", numbers.e)]
        }
        keys.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "tests", "use": "sig", "alg": "RS256", **parts}]}))
        self.given = 0
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                scheme, _, login = self.headers.get("Authorization", "").partition(" ")
                found = tuple(map(urllib.parse.unquote_plus, base64.b64decode(login).decode().split(":")))
                if (scheme, found) != ("Basic", (USER, PASSWORD)):
                    self._answer(401, {"error": "invalid_client"})
                    return
                tokens.given += 1
                self._answer(200, {"access_token": tokens.token(), "token_type": "Bearer", "expires_in": 300})

            def _answer(self, status: int, value: Mapping[str, Any]) -> None:
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *given: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self) -> str:
        """A JSON web token for the user."""
        now = int(time.time())
        claims = {"sub": USER, "iss": "tests", "aud": "kafka", "iat": now, "exp": now + 300, "scope": "kafka"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "tests"}, claims))
        return f"{signed}.{_base64(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


@dataclass(frozen=True)
class SecuredKafka:
    """The broker, and what its clients need.

    Args:
        broker: the listener PLAINTEXT is the administrator's.
        authority: signed the broker's certificate and the client's.
        client: of the user.
        tokens: knows the user.
        realm: knows the user too.
    """

    broker: KafkaBroker
    authority: Authority
    client: Pair
    tokens: TokenServer
    realm: Realm | None = None

    ways: ClassVar[Sequence[str]] = tuple(PROTOCOLS)

    def address(self, way: str) -> str:
        """`host:port` of a listener."""
        return self.broker.address(way)

    def settings(self, way: str, *, password: str = PASSWORD) -> dict[str, str]:
        """The client's settings, by Kafka's own names, for a login that works where the password is right."""
        found = {
            "security.protocol": PROTOCOLS.get(way, "SASL_SSL"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
        }
        if way == "MUTUAL":
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.client.certificate.read_text(),
                "ssl.keystore.key": self.client.key.read_text(),
            }
        if way in _MODULES:
            names = ("clientId", "clientSecret") if way == "OAUTH" else ("username", "password")
            given = " ".join(f'{name}="{value}"' for name, value in zip(names, (USER, password), strict=True))
            found |= {
                "sasl.mechanism": _MECHANISMS[way],
                "sasl.jaas.config": f"{_MODULES[way]} required {given};",
            }
        if way == "OAUTH":
            found |= {
                "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            }
        if way == KERBEROS:
            assert self.realm is not None
            # The JVM that runs the tests may have looked for a realm before there was one.
            login = f'keyTab="{self.realm.keytab(USER)}" principal="{USER}"'
            asked = f"useKeyTab=true storeKey=true refreshKrb5Config=true {login}"
            found |= {
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f"{_KEYTAB_MODULE} required {asked};",
            }
        return found


@contextmanager
def secured_kafka(folder: Path, realm: Realm | None = None) -> Iterator[SecuredKafka]:
    """Start the broker: whoever is known may do all that is asked for in the tests, and nobody else gets in.

    Args:
        folder: for all files.
        realm: makes one more listener, for its users.
    """
    authority = Authority(folder / "certificates")
    server, client = authority.pair("server"), authority.pair(USER)
    keys = folder / "keys.json"
    tokens = TokenServer(keys)
    both = folder / "certificates" / "server-both.pem"
    both.write_text(server.key.read_text() + server.certificate.read_text())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mutual.ssl.client.auth": "required",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f'{_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}";',
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_MODULES['SCRAM']} required;",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{_MODULES['OAUTH']} required;",
        "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.oauth.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.oauth.sasl.oauthbearer.expected.audience": "kafka",
    }
    java = [f"-D{_TOKENS}.urls={keys.as_uri()}", f"-D{_TOKENS}.files={keys}"]
    listeners = PROTOCOLS
    if realm is not None:
        listeners = {**PROTOCOLS, KERBEROS: "SASL_SSL"}
        java.append(f"-Djava.security.krb5.conf={realm.config}")
        own = "kafka/localhost"
        asked = f'useKeyTab=true storeKey=true keyTab="{realm.keytab(own)}" principal="{own}"'
        settings |= {
            "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.kerberos.sasl.kerberos.service.name": "kafka",
            "listener.name.kerberos.gssapi.sasl.jaas.config": f"{_KEYTAB_MODULE} required {asked};",
        }
    try:
        with KafkaBroker(folder / "broker", settings=settings, listeners=listeners, java=java) as broker:
            _make_scram_user(broker.bootstrap)
            yield SecuredKafka(broker, authority, client, tokens, realm)
    finally:
        tokens.close()


def _make_scram_user(bootstrap: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    made = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.alter_user_scram_credentials([made]).values():
        done.result(30)
