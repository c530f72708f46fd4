"""A proxy in front of a store, which answers as a busy store does: late, or with 503."""

from __future__ import annotations

import http.client
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY, SECRET = "a-key", "a/secret+with=odd%letters"
"""The login that tests use; the store takes any."""
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class SlowStore:
    """Passes requests on to a server on this machine.

    Attributes:
        behind: the port of the server.
        refused: the share of requests that are answered with 503 and do nothing.
        late: how many seconds an answer takes at the most.
        requests: how many were passed on, by method.
        refusals: how many were refused.
        some: decides which.
    """

    def __init__(self) -> None:
        self.behind = 0
        self.refused = 0.0
        self.late = 0.0
        self.requests: dict[str, int] = {}
        self.refusals = 0
        self.some = random.Random(35)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> SlowStore:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def passed_on(self) -> None:
                body = self._body()
                if store.some.random() < store.refused:
                    store.refusals += 1
                    self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
                    return
                # Lateness is what is tested; nobody waits here for something to happen.
                time.sleep(store.some.random() * store.late)
                store.requests[self.command] = store.requests.get(self.command, 0) + 1
                connection = http.client.HTTPConnection("127.0.0.1", store.behind)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_ONE_HOP}
                connection.request(self.command, self.path, body, headers)
                found = connection.getresponse()
                given = {name: value for name, value in found.getheaders() if name.lower() not in _OF_ONE_HOP}
                self._answer(found.status, given, found.read(), found.getheader("Content-Length"))
                connection.close()

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = passed_on  # noqa: N815

            def _body(self) -> bytes:
                if self.headers.get("Expect", "").lower() == "100-continue":
                    self.send_response_only(100)
                    self.end_headers()
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length", "0")))
                found = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    found += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass
                return found

            def _answer(self, status: int, headers: dict[str, str], body: bytes, length: str | None = None) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                # An answer to HEAD has a length, and no body: the client would take it for the next answer.
                self.send_header("Content-Length", str(len(body)) if body or length is None else length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


_OF_ONE_HOP = frozenset(["connection", "content-length", "expect", "keep-alive", "transfer-encoding"])
