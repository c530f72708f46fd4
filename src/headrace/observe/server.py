"""A small web server to watch a run: read only, on the requested address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from headrace.errors import OptionError

LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]", "::1")
_HIGHEST = 65535
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Scripts and styles come from the files of the package alone: neither from elsewhere nor out of a text on a page."""


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen.

    Args:
        host: a name or address of this machine.
        port: 0 for any free one.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine gets there."""
        return self.host in _LOCAL_NAMES

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Answer:
    """What a path is answered with."""

    type: str
    body: bytes
    status: HTTPStatus = HTTPStatus.OK


Route = Callable[[Mapping[str, str]], Answer]
"""From a request's query to the answer."""


def parse_address(text: str) -> ListenAddress:
    """`127.0.0.1:9464`, or a port alone, which is this machine's own.

    Raises:
        ValueError: it is neither.
    """
    host, _, port = text.strip().rpartition(":")
    if not port.isdecimal() or int(port) > _HIGHEST or (host and not host.strip("[]")):
        raise ValueError("write 127.0.0.1:9464, or a port alone")
    return ListenAddress(host.strip("[]") or LOOPBACK, int(port))


class WatchServer:
    """Answers GET requests by path until it is closed. Its threads end with the process.

    Args:
        address: where to listen.
        routes: answers by path.

    Raises:
        OptionError: the address can't be listened on.
    """

    def __init__(self, address: ListenAddress, routes: Mapping[str, Route]) -> None:
        try:
            self._server = _Server((address.host, address.port), _handler(routes, local=address.is_local))
        except OSError as error:
            raise OptionError(
                f"Can't listen on {address}: {error.strerror or error}.",
                remedy="Choose another address or stop the process that uses it.",
            ) from None
        self.address = ListenAddress(address.host, self._server.server_address[1])
        # It looks whether it is closed this often, and a run that ends waits for it.
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="headrace-watch", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def join(self) -> None:
        """Wait until it is closed, from another thread or by an interruption."""
        self._thread.join()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # An address that somebody listens on is refused, not shared.
    allow_reuse_port = False


def _handler(routes: Mapping[str, Route], *, local: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "headrace"
        sys_version = ""

        def do_GET(self) -> None:
            if local and not self._asks_this_machine():
                # A page of somebody else's in the user's browser must not read this under a name of its own.
                self._send(Answer("text/plain; charset=utf-8", b"Wrong host.\n", HTTPStatus.FORBIDDEN))
                return
            asked = urlsplit(self.path)
            route = routes.get(asked.path)
            if route is None:
                paths = ", ".join(sorted(routes))
                text = f"Not found. Known: {paths}.\n".encode()
                self._send(Answer("text/plain; charset=utf-8", text, HTTPStatus.NOT_FOUND))
                return
            query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
            self._send(route(query))

        def _asks_this_machine(self) -> bool:
            host = self.headers.get("Host", "")
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            return name in _LOCAL_NAMES

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Referrer-Policy", "no-referrer")
            self.send_header("Content-Security-Policy", _POLICY)
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            """Don't log requests to the console of a run."""

    return Handler
