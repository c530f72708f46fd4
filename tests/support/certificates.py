"""Certificates for servers and clients of tests, by an authority of their own."""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_END = dt.datetime(2120, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `file` is its own.

    Args:
        folder: for all files.
        name: in its certificate.
    """

    def __init__(self, folder: Path, name: str = "tests") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {name}")])
        self.file = folder / f"{name}-authority.pem"
        own = self._signed(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
        self.file.write_bytes(own)

    def pair(self, name: str, *, owner: str | None = None) -> Pair:
        """A certificate for a name: of a server on the loopback, or of a client.

        Args:
            name: the common name.
            owner: the user of this machine who reads the key, where it is not this one.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), loopback])
        made = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        made.certificate.write_bytes(self._signed(subject, key.public_key(), names))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        made.key.chmod(0o600)
        if owner is not None:
            shutil.chown(made.key, owner)
        return made

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(_BEGIN).not_valid_after(_END)
        made = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
