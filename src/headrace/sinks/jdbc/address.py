"""Where a target database is: what the sink's options `url`, `user` and `password` say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import OptionError
from headrace.options import is_secret
from headrace.passwords import current_password

_KINDS = {"postgresql": "postgresql", "postgres": "postgresql", "mariadb": "mariadb", "mysql": "mariadb"}
_PORTS = {"postgresql": 5432, "mariadb": 3306}
_OTHERS = {"sqlserver": "SQL Server", "oracle": "Oracle", "db2": "Db2"}
_HOW = "Write it as postgresql://host:port/database or mariadb://host:port/database; `jdbc:` in front is allowed."
_TITLES = {"postgresql": "PostgreSQL", "mariadb": "MariaDB or MySQL"}


@dataclass(frozen=True)
class Address:
    """A database on a server, and who logs in. Its text form holds no password."""

    kind: str
    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)
    password_command: str = field(default="", repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_TITLES[self.kind]} at {host}:{self.port}/{self.database}"

    def current_password(self) -> str:
        """As `headrace.passwords.current_password`."""
        return current_password(self.password, self.password_command)


def parse_address(url: str, user: str | None, password: str | None, password_command: str = "") -> Address:
    """Read the options.

    Raises:
        OptionError: the URL names another kind of database, lacks a part, or holds a secret, which would be shown.
    """
    text = re.sub(r"^jdbc:", "", url.strip(), flags=re.IGNORECASE)
    scheme = text.partition(":")[0].lower()
    if scheme in _OTHERS:
        raise OptionError(
            f"The jdbc sink does not write to {_OTHERS[scheme]}.",
            remedy=_HOW,
        )
    if scheme not in _KINDS:
        # The text itself is not repeated: it may hold a password.
        raise OptionError("Option 'url' of sink 'jdbc' does not name a supported kind of database.", remedy=_HOW)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise OptionError("Option 'url' of sink 'jdbc' is not a valid URL.", remedy=_HOW) from None
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database or "/" in database or parts.fragment:
        raise OptionError("Option 'url' of sink 'jdbc' lacks the host or the database.", remedy=_HOW)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    secret = "password" if parts.password is not None else next((name for name in parameters if is_secret(name)), None)
    if secret is not None:
        raise OptionError(
            f"Option 'url' of sink 'jdbc' holds a secret ('{secret}'), which would be shown.",
            remedy="Give it as the sink's option 'password'.",
        )
    inside = parameters.pop("user", None) or (unquote(parts.username) if parts.username else None)
    kind = _KINDS[scheme]
    port = port or _PORTS[kind]
    return Address(kind, parts.hostname, port, database, user or inside, password, parameters, password_command)
