"""A Kerberos realm of a test's own: MIT's server on the loopback, with its data in a folder."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import ConnectError
from headrace_emulators.engine.ports import free_ports
from headrace_emulators.engine.programs import Server, program

REALM = "HEADRACE.TEST"
_PROGRAMS = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "kinit": "krb5-user"}

_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_SERVER = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  acl_file = {folder}/acl
}}
"""


def _missing() -> str:
    """What to run on this machine so that it can run the server; empty where it can."""
    try:
        for name, package in _PROGRAMS.items():
            program(name, package)
    except ConnectError as error:
        return error.remedy
    return ""


needs_kerberos = pytest.mark.skipif(bool(_missing()), reason=f"no Kerberos server is installed. {_missing()}")
"""Mark of a test that starts a realm by `kerberos`."""


class Realm:
    """The realm, which knows nobody at first.

    Args:
        folder: for its data.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        self.config = folder / "krb5.conf"
        self.config.write_text(_CLIENT.format(realm=REALM, port=self.port))
        profile = folder / "kdc.conf"
        profile.write_text(_SERVER.format(realm=REALM, port=self.port, folder=folder))
        self.environ = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(profile)}
        """What the clients and servers of the realm need in their environment."""

    def answers(self) -> bool:
        """Whether the server takes connections."""
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def keytab(self, principal: str) -> Path:
        """Make a principal, if it is not there; the file that has its key."""
        file = self.folder / f"{principal.replace('/', '-')}.keytab"
        if file.exists():
            return file
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {file} {principal}")
        return file

    def tickets(self, principal: str, keytab: Path) -> Path:
        """Log a principal in; the file that has the ticket."""
        file = self.folder / f"{principal}.cache"
        self.run("kinit", "-c", f"FILE:{file}", "-k", "-t", str(keytab), principal)
        return file

    def run(self, name: str, *words: str) -> None:
        """Run one of Kerberos' programs for this realm."""
        command = [program(name, _PROGRAMS[name]), *words]
        subprocess.run(command, env={**os.environ, **self.environ}, check=True, capture_output=True)


@contextmanager
def kerberos(folder: Path) -> Iterator[Realm]:
    """Start a realm; it ends with the block."""
    realm = Realm(folder)
    realm.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of the tests")
    server = Server("Kerberos", folder / "kdc.log")
    command = [program("krb5kdc", _PROGRAMS["krb5kdc"]), "-n", "-r", REALM]
    server.start(command, folder=folder, environment={**os.environ, **realm.environ})
    try:
        server.wait_until(realm.answers, "it answered")
        yield realm
    finally:
        server.stop()
