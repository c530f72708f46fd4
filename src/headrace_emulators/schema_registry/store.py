"""What a schema registry holds: contents with an id each, subjects with versions, and rules of compatibility.

In memory, for one process; every method may be called from any thread.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace_emulators.schema_registry.compatibility import problems

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
GROUP = "default"


class RegistryRefusal(Exception):
    """An error that the registry answers.

    Args:
        code: Confluent's error code; its first three digits are the HTTP status.
        message: the sentence beside it.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


class Reference(NamedTuple):
    """A type that a content names and a version of another subject defines."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Version:
    """One version of a subject: the content's id, the version's own id over all subjects, and its number."""

    content: int
    number: int
    global_id: int


@dataclass
class Subject:
    """The versions of one subject, oldest first; deleted ones keep their place in `gone`."""

    versions: list[Version] = field(default_factory=list)
    gone: list[Version] = field(default_factory=list)
    level: str | None = None


def canonical(schema: str, referenced: Sequence[Any] = ()) -> str:
    """The text by which two schemas are the same: JSON without spaces, in the given order.

    Args:
        schema: its text.
        referenced: the schemas whose types it may name.

    Raises:
        RegistryRefusal: it is not an Avro schema.
    """
    try:
        parsed = json.loads(schema)
    except (ValueError, TypeError) as error:
        raise RegistryRefusal(42201, f"Invalid schema: no JSON ({error})") from error
    wrong = problems(_beside(referenced, parsed))
    if wrong:
        raise RegistryRefusal(42201, f"Invalid schema: {wrong[0]}")
    return json.dumps(parsed, separators=(",", ":"), ensure_ascii=False)


def _beside(referenced: Sequence[Any], schema: Any) -> Any:
    """A schema with those in front whose types it names, as one union: its names are known by then."""
    if not referenced:
        return schema
    return [*referenced, *(schema if isinstance(schema, list) else [schema])]


def guid(content: str) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(content.encode(), usedforsecurity=False).digest()))


class SchemaStore:
    """Subjects and contents.

    Args:
        level: the compatibility that a new version must have with the newest one (or all, where transitive).
    """

    def __init__(self, level: str = "BACKWARD") -> None:
        self.level = level
        self.contents: dict[int, str] = {}
        self.references: dict[int, tuple[Reference, ...]] = {}
        self._ids: dict[tuple[str, tuple[Reference, ...]], int] = {}
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._versions = 0
        self._lock = threading.RLock()

    def put(self, id: int, schema: Any) -> None:
        """Hold a content under an id of your own, outside any subject."""
        with self._lock:
            text = canonical(schema if isinstance(schema, str) else json.dumps(schema))
            self.contents[id] = text
            self._ids.setdefault((text, ()), id)

    def register(
        self, subject: str, schema: str, group: str = GROUP, references: tuple[Reference, ...] = ()
    ) -> Version:
        """The version of the subject that has this content; made if there is none.

        Raises:
            RegistryRefusal: no Avro schema (42201), or not compatible (409).
        """
        with self._lock:
            text = canonical(schema, self._referenced(references))
            found = self._subjects.setdefault((group, subject), Subject())
            for version in found.versions:
                if self._is(version, text, references):
                    return version
            whole = _beside(self._referenced(references), json.loads(text))
            wrong = self._incompatible(whole, found, [v.content for v in found.versions])
            if wrong:
                raise RegistryRefusal(409, f"Schema being registered is incompatible with an earlier schema: {wrong}")
            content = self._ids.get((text, references))
            if content is None:
                content = max(self.contents, default=0) + 1
                self.contents[content] = text
                self.references[content] = references
                self._ids[text, references] = content
            self._versions += 1
            number = max((v.number for v in (*found.versions, *found.gone)), default=0) + 1
            version = Version(content, number, self._versions)
            found.versions.append(version)
            return version

    def _is(self, version: Version, text: str, references: tuple[Reference, ...]) -> bool:
        return self.contents[version.content] == text and self.references.get(version.content, ()) == references

    def _referenced(self, references: Sequence[Reference]) -> list[Any]:
        """The schemas that references name, those in front that they name themselves."""
        found: list[Any] = []
        for one in references:
            content = self.version(one.subject, str(one.version)).content
            found += self._referenced(self.references.get(content, ()))
            found.append(json.loads(self.contents[content]))
        return [schema for place, schema in enumerate(found) if schema not in found[:place]]

    def _whole(self, content: int) -> Any:
        return _beside(self._referenced(self.references.get(content, ())), json.loads(self.contents[content]))

    def compatible(self, subject: str, schema: str, version: str | None) -> list[str]:
        """Why the schema does not go with a version of the subject (or with what its level requires); empty if it does.

        Raises:
            RegistryRefusal: 40401, 40402 or 42201.
        """
        with self._lock:
            text = canonical(schema)
            found = self.subject(subject)
            chosen = found.versions if version is None else [self.version(subject, version)]
            wrong = self._incompatible(json.loads(text), found, [v.content for v in chosen])
            return [wrong] if wrong else []

    def _incompatible(self, new_schema: Any, subject: Subject, earlier: list[int]) -> str | None:
        level = subject.level or self.level
        if level == "NONE" or not earlier:
            return None
        for old in earlier if level.endswith("_TRANSITIVE") else earlier[-1:]:
            old_schema = self._whole(old)
            wrong: list[str] = []
            if level.startswith(("BACKWARD", "FULL")):
                wrong += problems(new_schema, old_schema)
            if level.startswith(("FORWARD", "FULL")):
                wrong += problems(old_schema, new_schema)
            if wrong:
                return wrong[0]
        return None

    def content(self, id: int) -> str:
        """The content of that id.

        Raises:
            RegistryRefusal: 40403.
        """
        with self._lock:
            if id not in self.contents:
                raise RegistryRefusal(40403, f"Schema {id} not found")
            return self.contents[id]

    def by_guid(self, wanted: str) -> tuple[int, str]:
        """The content of that GUID, with its id.

        Raises:
            RegistryRefusal: 40403.
        """
        with self._lock:
            for id, text in self.contents.items():
                if guid(text) == wanted.lower():
                    return id, text
        raise RegistryRefusal(40403, f"Schema {wanted} not found")

    def by_global_id(self, id: int) -> tuple[str, str, Version]:
        """Group, subject and version of a version's own id.

        Raises:
            RegistryRefusal: 40403.
        """
        with self._lock:
            for (group, name), subject in self._subjects.items():
                for version in (*subject.versions, *subject.gone):
                    if version.global_id == id:
                        return group, name, version
        raise RegistryRefusal(40403, f"No artifact with global ID '{id}' could be found.")

    def names(self, group: str = GROUP) -> list[str]:
        with self._lock:
            return sorted(name for (g, name), s in self._subjects.items() if g == group and s.versions)

    def subject(self, name: str, group: str = GROUP) -> Subject:
        """A subject that has a version.

        Raises:
            RegistryRefusal: 40401.
        """
        with self._lock:
            found = self._subjects.get((group, name))
            if found is None or not found.versions:
                raise RegistryRefusal(40401, f"Subject '{name}' not found.")
            return found

    def version(self, name: str, wanted: str, group: str = GROUP) -> Version:
        """A version by number or `latest`.

        Raises:
            RegistryRefusal: 40401, 40402, or 42202 where it is neither.
        """
        found = self.subject(name, group)
        if wanted in ("latest", "-1"):
            return found.versions[-1]
        if not wanted.isdigit() or int(wanted) < 1:
            raise RegistryRefusal(42202, f"The specified version '{wanted}' is not a valid version id.")
        for version in found.versions:
            if version.number == int(wanted):
                return version
        raise RegistryRefusal(40402, f"Version {wanted} not found.")

    def lookup(self, name: str, schema: str, group: str = GROUP, references: tuple[Reference, ...] = ()) -> Version:
        """The version of a subject that has this content.

        Raises:
            RegistryRefusal: 40401, 40403 or 42201.
        """
        with self._lock:
            text = canonical(schema, self._referenced(references))
            for version in self.subject(name, group).versions:
                if self._is(version, text, references):
                    return version
        raise RegistryRefusal(40403, "Schema not found")

    def users(self, id: int) -> list[tuple[str, int]]:
        """Subject and version of every use of a content."""
        with self._lock:
            return sorted(
                (name, version.number)
                for (_, name), subject in self._subjects.items()
                for version in subject.versions
                if version.content == id
            )

    def delete(self, name: str, version: str | None = None) -> list[int]:
        """Take out one version, or all: the numbers taken out. Contents stay readable by id, as in a soft delete.

        Raises:
            RegistryRefusal: 40401, 40402 or 42202.
        """
        with self._lock:
            found = self.subject(name)
            out = list(found.versions) if version is None else [self.version(name, version)]
            found.versions = [v for v in found.versions if v not in out]
            found.gone += out
            return [v.number for v in out]

    def level_of(self, name: str | None, *, inherited: bool) -> str:
        """The compatibility of a subject or of all.

        Raises:
            RegistryRefusal: 40408, where the subject has none of its own.
        """
        with self._lock:
            own = self._subjects[GROUP, name].level if name and (GROUP, name) in self._subjects else None
            if name is None or own is not None or inherited:
                return own or self.level
        raise RegistryRefusal(40408, f"Subject '{name}' does not have subject-level compatibility configured")

    def set_level(self, name: str | None, level: Any) -> None:
        """Set the compatibility of a subject or of all; None takes a subject's own away.

        Raises:
            RegistryRefusal: 42203.
        """
        if level is not None and level not in LEVELS:
            raise RegistryRefusal(42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
        with self._lock:
            if name is None:
                self.level = level or "BACKWARD"
            else:
                self._subjects.setdefault((GROUP, name), Subject()).level = level
