"""Whether a REST catalogue takes a login, asked without Java: the first request that Iceberg's own client sends."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from urllib.parse import quote, urlencode

from headrace.errors import ConnectError

_PATIENCE_SECONDS = 10.0
_OTHER_LOGINS = ("rest.auth.", "rest.sigv4", "rest.signing")
"""What the settings begin with that have Iceberg log in by other means, which take its Java."""


def reach_rest_catalog(
    uri: str, warehouse: str | None, *, token: str | None, credential: str | None, more: Mapping[str, str]
) -> str:
    """Ask a REST catalogue for its configuration, as Iceberg does first.

    Args:
        uri: its address.
        warehouse: which warehouse of it.
        token: a token that it takes.
        credential: `client:secret`, for which it, or `oauth2-server-uri`, gives a token.
        more: other settings, by Iceberg's names.

    Raises:
        ConnectError: it can't be reached, refuses the login, or is no such catalogue. No secret is in the message.
    """
    headers = {name.removeprefix("header."): value for name, value in more.items() if name.startswith("header.")}
    if any(name.startswith(_OTHER_LOGINS) for name in more):
        _answer(uri, "v1/config", headers, refusal_is_answer=True)
        return "The REST catalogue answers; whether it accepts the login shows when a run starts."
    if credential is not None and token is None:
        token = _token(uri, credential, headers, more)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    path = "v1/config" + (f"?warehouse={quote(warehouse, safe='')}" if warehouse else "")
    answer = _answer(uri, path, headers)
    if not isinstance(answer, dict) or "defaults" not in answer:
        raise ConnectError(
            f"What answers at {uri} is no Iceberg REST catalogue.",
            remedy="Check the sink's option 'uri': it ends where Iceberg's '/v1/config' begins.",
        )
    return "The REST catalogue accepts the login." if token else "The REST catalogue answers, without a login."


def _token(uri: str, credential: str, headers: Mapping[str, str], more: Mapping[str, str]) -> str:
    client, _, secret = credential.rpartition(":")
    form = {"grant_type": "client_credentials", "client_secret": secret, "scope": more.get("scope", "catalog")}
    form |= {"client_id": client} if client else {}
    server = more.get("oauth2-server-uri", "v1/oauth/tokens")
    answer = _answer(uri, server, headers, data=urlencode(form).encode())
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str):
        raise ConnectError(
            f"The REST catalogue at {uri} gives no token for the login.",
            remedy="Check the sink's options 'credential', 'catalog.scope' and 'catalog.oauth2-server-uri'.",
        )
    return token


def _answer(
    uri: str, path: str, headers: Mapping[str, str], *, data: bytes | None = None, refusal_is_answer: bool = False
) -> object:
    """What a request gives, as JSON; null where it was refused and that counts as an answer."""
    whole = path if "://" in path else f"{uri.rstrip('/')}/{path}"
    try:
        request = urllib.request.Request(whole, data=data, headers=dict(headers))
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:
            text = response.read()
    except urllib.error.HTTPError as failure:
        if refusal_is_answer and failure.code in (401, 403):
            return None
        if failure.code in (400, 401, 403):
            raise ConnectError(
                f"The REST catalogue at {uri} refuses the request ({failure.code} {failure.reason}).",
                remedy="Check the sink's options 'token' or 'credential', 'warehouse' and 'catalog.scope'.",
            ) from None
        raise _no_answer(uri, f"{failure.code} {failure.reason}") from None
    except (OSError, HTTPException, ValueError) as failure:
        raise _no_answer(uri, str(getattr(failure, "reason", "")) or type(failure).__name__) from None
    try:
        answer: object = json.loads(text)
    except ValueError:
        return None
    return answer


def _no_answer(uri: str, reason: str) -> ConnectError:
    return ConnectError(
        f"The REST catalogue at {uri} can't be asked ({reason}).",
        remedy="Check the sink's option 'uri', and whether the server runs.",
    )
