"""Where a real Oracle database is, as the environment says it. Nobody of this project has run the scenarios on one yet
(docs/live.md)."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

URL = "HEADRACE_ORACLE_URL"
EXAMPLE = "oracle://C%23%23HEADRACE:<password>@localhost:1521/FREE?pdb=FREEPDB1"


def settings_from(text):
    """The source's options that an address stands for.

    Raises:
        ValueError: it is of another form.
    """
    url = urlsplit(text)
    if url.scheme != "oracle" or not url.hostname or not url.path.strip("/"):
        raise ValueError(f"{URL} has the form {EXAMPLE}")
    return {
        "driver": "oracledb",
        "hostname": url.hostname,
        "port": str(url.port or ""),
        "database": url.path.strip("/"),
        "user": unquote(url.username or ""),
        "password": unquote(url.password or ""),
        **dict(parse_qsl(url.query)),
    }
