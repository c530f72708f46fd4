"""A schema registry on this machine, for tests and demos: Confluent's HTTP interface, and Apicurio's beside it.

    with SchemaRegistryServer() as registry:
        headrace.encode(changes, format="debezium_avro", registry=registry.url, ...)

`python -m headrace_emulators.schema_registry.server --port 8081` runs one until it is stopped. It keeps everything in
memory and listens on 127.0.0.1 only.

| path | whose |
|---|---|
| `/subjects`, `/schemas`, `/config`, `/compatibility`, `/mode`, `/contexts` | Confluent's |
| the same below `/apis/ccompat/v6` and `/apis/ccompat/v7` | Apicurio's stand-in for Confluent's |
| `/apis/registry/v2` (`groups`, `ids`, `search`, `system/info`) | Apicurio's own, what its converters 2.x use |

As in Apicurio, a content has one id (`contentId`, which is Confluent's id too) and every version of an artifact a
`globalId` of its own. Avro only; subjects are the artifacts of the group `default`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from headrace_emulators.schema_registry import apicurio
from headrace_emulators.schema_registry.store import Reference, RegistryRefusal, SchemaStore, guid

_CCOMPAT = ("apis/ccompat/v6/", "apis/ccompat/v7/")
_CONFLUENT_JSON = "application/vnd.schemaregistry.v1+json"


class SchemaRegistryServer:
    """A registry in a thread of this process.

    Args:
        port: 0 takes a free one, which stays the same when the server is started again.
        user_info: `user:password` that every request must carry; None for none.
        level: the compatibility that new versions must have where nothing else is set (Confluent's default).

    Attributes:
        store: what it holds; it outlives `stop`.
        requests: method and path of every request so far.
    """

    def __init__(self, port: int = 0, *, user_info: str | None = None, level: str = "BACKWARD") -> None:
        self.store = SchemaStore(level)
        self.requests: list[str] = []
        self._port = port
        self._user_info = user_info
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._open: set[socket.socket] = set()

    def start(self) -> Self:
        """Listen; after `stop` again, on the same port and with the same contents."""
        server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        server.daemon_threads = True
        self._port = server.server_address[1]
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close the port; requests then fail to connect."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._thread is not None:
            self._thread.join()
        # Clients keep connections open, and their threads would go on answering.
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of Confluent's interface."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def apicurio_url(self) -> str:
        """The address of Apicurio's own interface."""
        return f"{self.url}/apis/registry/v2"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it the answer's two packets wait for each other.
            wbufsize = -1

            def setup(self) -> None:
                super().setup()
                owner._open.add(self.connection)

            def finish(self) -> None:
                owner._open.discard(self.connection)
                with contextlib.suppress(OSError):
                    super().finish()

            def do_GET(self) -> None:
                self._answer()

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 (the names are those of http.server)

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                owner.requests.append(f"{self.command} {self.path}")
                status, content, kind = owner._answered(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing on the console."""

        return Handler

    def _answered(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes, str]:
        parts = urlsplit(target)
        path = parts.path.strip("/")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        own = path.startswith("apis/registry/v2")
        try:
            self._check(headers)
            if own:
                names = [unquote(part) for part in path.removeprefix("apis/registry/v2").strip("/").split("/")]
                lower = {name.lower(): value for name, value in headers.items()}
                found = apicurio.answer(self.store, method, names, query, lower, body)
            else:
                for prefix in _CCOMPAT:
                    path = path.removeprefix(prefix)
                names = [unquote(part) for part in path.split("/")] if path else []
                found = confluent(self.store, method, names, query, body)
            return 200, json.dumps(found).encode(), "application/json" if own else _CONFLUENT_JSON
        except RegistryRefusal as refusal:
            answer: dict[str, Any] = {"error_code": refusal.code, "message": refusal.message}
            if own:
                answer = {
                    "error_code": refusal.status,
                    "message": refusal.message,
                    "name": apicurio.error_name(refusal),
                }
            return refusal.status, json.dumps(answer).encode(), "application/json" if own else _CONFLUENT_JSON

    def _check(self, headers: Mapping[str, str]) -> None:
        if self._user_info is None:
            return
        wanted = "Basic " + base64.b64encode(self._user_info.encode()).decode()
        given = next((value for name, value in headers.items() if name.lower() == "authorization"), None)
        if given != wanted:
            raise RegistryRefusal(401, "Unauthorized")


def confluent(store: SchemaStore, method: str, path: list[str], query: Mapping[str, str], body: bytes) -> Any:
    """The answer of Confluent's interface, as JSON values.

    Raises:
        RegistryRefusal: the request names something unknown, or is not allowed.
    """
    if not path:
        return {}
    room = _ROOMS.get(path[0])
    if room is None:
        raise RegistryRefusal(404, f"HTTP 404 Not Found: /{'/'.join(path)}")
    return room(store, method, path[1:], query, _json(body))


def _json(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        found = json.loads(body)
    except ValueError as error:
        raise RegistryRefusal(400, "The request's body is not JSON.") from error
    return found if isinstance(found, dict) else {}


def _schema(body: Mapping[str, Any]) -> str:
    kind = body.get("schemaType") or "AVRO"
    if kind != "AVRO":
        raise RegistryRefusal(42201, f"Invalid schema type {kind}")
    schema = body.get("schema")
    if not isinstance(schema, str):
        raise RegistryRefusal(42201, "Empty schema")
    return schema


def _references(body: Mapping[str, Any]) -> tuple[Reference, ...]:
    return tuple(Reference(r["name"], r["subject"], int(r["version"])) for r in body.get("references") or ())


def _held(store: SchemaStore, id: int) -> dict[str, Any]:
    text, references = store.content(id), store.references.get(id, ())
    found: dict[str, Any] = {"schema": text, "guid": guid(text)}
    return found | ({"references": [one._asdict() for one in references]} if references else {})


def _described(store: SchemaStore, name: str, wanted: str) -> dict[str, Any]:
    version = store.version(name, wanted)
    return {"subject": name, "version": version.number, "id": version.content, **_held(store, version.content)}


def _subjects(
    store: SchemaStore, method: str, path: list[str], query: Mapping[str, str], body: Mapping[str, Any]
) -> Any:
    match method, path:
        case "GET", []:
            return [name for name in store.names() if name.startswith(query.get("subjectPrefix", ""))]
        case "POST", [name]:
            found = store.lookup(name, _schema(body), references=_references(body))
            return _described(store, name, str(found.number))
        case "DELETE", [name]:
            return store.delete(name)
        case "GET", [name, "versions"]:
            return [version.number for version in store.subject(name).versions]
        case "POST", [name, "versions"]:
            made = store.register(name, _schema(body), references=_references(body))
            held = _held(store, made.content)
            return {"id": made.content, "version": made.number, "schemaType": "AVRO", **held}
        case "GET", [name, "versions", wanted]:
            return _described(store, name, wanted)
        case "DELETE", [name, "versions", wanted]:
            return store.delete(name, wanted)[0]
        case "GET", [name, "versions", wanted, "schema"]:
            return json.loads(store.content(store.version(name, wanted).content))
        case "GET", [_, "versions", _, "referencedby"]:
            return []
    raise RegistryRefusal(405, "HTTP 405 Method Not Allowed")


def _schemas(
    store: SchemaStore, method: str, path: list[str], query: Mapping[str, str], body: Mapping[str, Any]
) -> Any:
    match method, path:
        case "GET", ["types"]:
            return ["AVRO"]
        case "GET", ["ids", id]:
            return _held(store, _number(id))
        case "GET", ["ids", id, "schema"]:
            return json.loads(store.content(_number(id)))
        case "GET", ["ids", id, "subjects"]:
            store.content(_number(id))
            return [name for name, _ in store.users(_number(id))]
        case "GET", ["ids", id, "versions"]:
            store.content(_number(id))
            return [{"subject": name, "version": version} for name, version in store.users(_number(id))]
        case "GET", ["guids", wanted]:
            return {**_held(store, store.by_guid(wanted)[0]), "guid": wanted, "schemaType": "AVRO"}
        case "GET", ["guids", wanted, "ids"]:
            return [{"context": ".", "id": store.by_guid(wanted)[0]}]
    raise RegistryRefusal(405, "HTTP 405 Method Not Allowed")


def _number(id: str) -> int:
    if not id.isdigit():
        raise RegistryRefusal(404, "HTTP 404 Not Found")
    return int(id)


def _config(store: SchemaStore, method: str, path: list[str], query: Mapping[str, str], body: Mapping[str, Any]) -> Any:
    name = path[0] if path else None
    if method == "GET":
        inherited = query.get("defaultToGlobal", "false").lower() == "true"
        return {"compatibilityLevel": store.level_of(name, inherited=inherited)}
    if method == "PUT":
        store.set_level(name, body.get("compatibility") or "")
        return {"compatibility": body["compatibility"]}
    before = store.level_of(name, inherited=False)
    store.set_level(name, None)
    return {"compatibilityLevel": before}


def _compatibility(
    store: SchemaStore, method: str, path: list[str], query: Mapping[str, str], body: Mapping[str, Any]
) -> Any:
    match method, path:
        case "POST", ["subjects", name, "versions", *wanted]:
            wrong = store.compatible(name, _schema(body), wanted[0] if wanted else None)
            answer: dict[str, Any] = {"is_compatible": not wrong}
            return answer | ({"messages": wrong} if query.get("verbose", "false").lower() == "true" else {})
    raise RegistryRefusal(405, "HTTP 405 Method Not Allowed")


_ROOMS: Mapping[str, Callable[[SchemaStore, str, list[str], Mapping[str, str], Mapping[str, Any]], Any]] = {
    "subjects": _subjects,
    "schemas": _schemas,
    "config": _config,
    "compatibility": _compatibility,
    "mode": lambda *_: {"mode": "READWRITE"},
    "contexts": lambda *_: ["."],
}


def main() -> None:
    """Run `python -m headrace_emulators.schema_registry.server`."""
    parser = argparse.ArgumentParser(prog="python -m headrace_emulators.schema_registry.server", description=__doc__)
    parser.add_argument("--port", type=int, default=8081, help="the port on 127.0.0.1 (0: a free one)")
    parser.add_argument("--level", default="BACKWARD", help="the compatibility level of subjects without one")
    given = parser.parse_args()
    with SchemaRegistryServer(given.port, level=given.level) as server:
        print(f"A schema registry listens on {server.url}; end it with Ctrl-C.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("Ended.")


if __name__ == "__main__":
    main()
