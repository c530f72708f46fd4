"""The logins of a server's directory. A server without any lets everyone in."""

from __future__ import annotations

import hashlib
import json
import secrets
from pathlib import Path

_FILE = "logins.json"
_ROUNDS = 10_000


def add(directory: Path, user: str, password: str) -> None:
    """Let a user in by password. From the first login on, everyone needs one."""
    logins = _logins(directory)
    salt = secrets.token_hex(16)
    logins[user] = {"salt": salt, "hash": _hashed(password, salt)}
    (directory / _FILE).write_text(json.dumps(logins, indent=1), "utf-8")


def admits(directory: Path, user: str, password: str) -> bool:
    """Whether a user may log in with a password. The case of the user's name does not matter."""
    logins = {name.lower(): entry for name, entry in _logins(directory).items()}
    if not logins:
        return True
    entry = logins.get(user.lower())
    return entry is not None and secrets.compare_digest(_hashed(password, entry["salt"]), entry["hash"])


def _logins(directory: Path) -> dict[str, dict[str, str]]:
    path = directory / _FILE
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _hashed(password: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), bytes.fromhex(salt), _ROUNDS).hex()
