"""Passwords that a command prints: tokens that expire (IAM, Microsoft Entra), and secrets that a vault keeps."""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from dataclasses import dataclass, field

from headrace.errors import ConnectError, OptionError
from headrace.settings import Settings, option

_KEPT_SECONDS = 60
_PATIENCE_SECONDS = 60


class NoPassword(ConnectError):
    """The command that prints the password failed: it may work in a moment."""


class PasswordSettings(Settings):
    """Where a password comes from that is not written down."""

    password_command: str = option(
        "A command that prints the password, in place of 'password': for tokens that expire (of IAM or Microsoft "
        "Entra) and secrets in a vault. It runs without a shell where a connection is made, so on the driver and on "
        "executors, and what it prints is used for a minute.",
        default="",
    )


@dataclass
class _Printed:
    """What commands printed in this process, each for a while."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    found: dict[str, tuple[float, str]] = field(default_factory=dict)


_PRINTED = _Printed()


def password_of(settings: Settings) -> str:
    return current_password(settings.get("password"), settings.get("password_command"))


def current_password(given: str | None, command: str | None) -> str:
    """The password to log in with now: the given one, or what the command prints.

    Runs on the driver and on executors. A command that was run less than a minute ago in this process is not run again.

    Args:
        given: the option `password`.
        command: the option `password_command`.

    Raises:
        OptionError: both are given, or the command can't be run.
        NoPassword: the command fails, takes longer than a minute, or prints nothing.
    """
    if not command:
        return given or ""
    if given:
        raise OptionError("Both 'password' and 'password_command' are given.", remedy="Take one of them out.")
    with _PRINTED.lock:
        at, text = _PRINTED.found.get(command, (0.0, ""))
        if not text or time.monotonic() - at > _KEPT_SECONDS:
            text = _printed(command)
            _PRINTED.found[command] = (time.monotonic(), text)
        return text


def _printed(command: str) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        raise OptionError("Option 'password_command' has a quote without its end.", remedy="Close it.") from None
    remedy = "Run the command by hand, as the user that the job runs as, on the machine that tried."
    # Nothing of what it prints is repeated, not even of its errors: it may be the secret.
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, IndexError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise OptionError(f"The command of 'password_command' can't be run: {reason}.", remedy=remedy) from None
    except subprocess.TimeoutExpired:
        raise NoPassword(
            f"The command of 'password_command' takes longer than {_PATIENCE_SECONDS} seconds.", remedy=remedy
        ) from None
    if done.returncode:
        raise NoPassword(f"The command of 'password_command' ended with {done.returncode}.", remedy=remedy)
    text = done.stdout.decode(errors="replace").rstrip("\r\n")
    if not text:
        raise NoPassword("The command of 'password_command' printed nothing.", remedy=remedy)
    return text
