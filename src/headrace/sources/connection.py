"""What connections to databases have in common: the end, and errors without secrets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Self

from headrace.errors import ConnectError

_LOG = logging.getLogger("headrace.sources")


class LostConnection(ConnectError):
    """The server is not there, or is no longer: it may be in a moment."""


class DriverConnection:
    """A driver's connection. Not shared between threads and never pickled.

    Args:
        settings: what the driver needs.
    """

    _connection: Any

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._user = settings.get("user") or ""
        self._secrets = [secret for secret in (settings.get("password"),) if secret]

    def close(self) -> None:
        """Close the connection; a connection that is broken already is as good as closed."""
        try:
            self._connection.close()
        except Exception as error:
            _LOG.debug("A connection could not be closed in order: %s", self._clean(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clean(self, error: Exception) -> str:
        """A driver's message without the password."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text
