"""Signals as files of a folder: written by the command or by hand, taken once each, never deleted.

Which files were taken stands in the offset, so that a restart takes none twice and leaves none out. Names give the
order among files that wait together, and nothing else: one that is named far in the future, or that comes late, keeps
no other from being read.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import FormatError, OptionError
from headrace.sources.signals import TYPES, Signal, say_once, why

_SUFFIX = ".json"
_STAMP = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-[0-9a-f]{8}\.json")
"""The names that the command gives."""
_FORM = "%Y%m%dT%H%M%S.%fZ"
_SETTLED = dt.timedelta(days=1)
"""So long after its time no file with such a name is expected any more, whatever clock its writer had."""


@dataclass(frozen=True)
class TakenFiles:
    """The signal files that were taken. Immutable.

    Args:
        upto: files that the command named up to this name were taken, or would be ignored.
        names: what was taken beside them and is still in the folder; None as releases before wrote it, which took all
            names up to `upto`.
    """

    upto: str = ""
    names: tuple[str, ...] | None = ()

    def new(self, present: Iterable[str]) -> list[str]:
        """Those in the folder that were not taken, in order."""
        return sorted(name for name in present if not self._has(name))

    def taking(self, present: Iterable[str], now: dt.datetime) -> TakenFiles:
        present = list(present)
        settled = [name for name in (*present, self.upto) if _is_settled(name, now)]
        upto = max(settled, default="")
        return TakenFiles(upto, tuple(sorted(name for name in present if not (_is_stamped(name) and name <= upto))))

    def _has(self, name: str) -> bool:
        if self.names is None:
            return name <= self.upto
        return name in self.names or (_is_stamped(name) and name <= self.upto)

    def to_json(self) -> dict[str, Any]:
        return {"file": self.upto, "files": None if self.names is None else list(self.names)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TakenFiles:
        """Read `to_json`'s form back, and that of releases which had only the last name."""
        names = data.get("files")
        if names is None and not data["file"]:
            return cls()
        return cls(data["file"], None if names is None else tuple(names))


def signal_file(folder: str, signal: Signal) -> Path:
    """Ask by a file in the source's folder of signals, where it has one.

    Raises:
        OptionError: it has none (`folder` is empty), or the folder can't be written.
    """
    if not folder:
        raise OptionError(
            "The pipeline has no place for signals.",
            remedy="Set 'signal_data_collection' (a captured table) or 'signal_path' (a folder) in its source.",
        )
    return write_file(Path(folder), signal)


def write_file(folder: Path, signal: Signal) -> Path:
    """Leave a signal in a folder, whole or not at all; its name sorts after those that the command gave before, also
    where a clock ran ahead.

    Raises:
        OptionError: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{_next_time(folder):{_FORM}}-{uuid.uuid4().hex[:8]}"
        path = folder / f"{stamp}{_SUFFIX}"
        partial = folder / f".{stamp}.partial"
        data = json.loads(signal.data or "{}")
        partial.write_text(json.dumps({"id": signal.id, "type": signal.type, "data": data}), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise OptionError(
            f"Signal folder '{folder}' can't be written ({error.strerror}).", remedy="Set 'signal_path' to another."
        ) from error
    return path


def present_files(folder: str) -> list[str]:
    """The names of the signal files in a folder; none where there is no folder.

    Raises:
        OSError: it can't be read.
    """
    if not folder:
        return []
    try:
        names = [entry.name for entry in Path(folder).iterdir() if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        # The folder is made by the first signal.
        return []
    for name in names:
        if not name.endswith(_SUFFIX):
            say_once(
                f"File '{name}' in signal folder '{folder}' is not read, because its name doesn't end in {_SUFFIX}."
            )
    return [name for name in names if name.endswith(_SUFFIX)]


def has_files(folder: str, taken: TakenFiles) -> bool:
    """Whether a signal folder has files that were not taken yet; a folder that can't be read has none."""
    try:
        return bool(taken.new(present_files(folder)))
    except OSError:
        # The planner says so.
        return False


def new_signals(folder: str, taken: TakenFiles) -> list[Signal]:
    """The signals in the files that were not taken yet, as far as they can be read; nothing is taken or said."""
    signals = []
    with suppress(OSError):
        for name in taken.new(present_files(folder)):
            with suppress(FormatError):
                # The planner that takes it says so.
                signals.append(read_file(Path(folder), name))
    return signals


def take_files(folder: str, taken: TakenFiles, say: Callable[[str], None]) -> tuple[TakenFiles, list[Signal]]:
    """The signals in the files that were not taken yet, in the order of their names, and what is taken with them.

    Args:
        folder: the signal folder; empty for none.
        taken: what was taken before; it stays the same where there is no new file.
        say: is given one sentence for each file that can't be read; it counts as taken.
    """
    try:
        present = present_files(folder)
    except OSError as error:
        say_once(f"Signal folder '{folder}' can't be read ({error.strerror}); nothing is taken from it.")
        return taken, []
    now = dt.datetime.now(dt.UTC)
    names = taken.new(present)
    hides = taken.names is None and not _is_settled(taken.upto, now)
    if not names and not hides:
        return taken, []
    signals = []
    for name in names:
        try:
            signals.append(read_file(Path(folder), name))
        except FormatError as error:
            say(str(error))
    return taken.taking(present, now), signals


def read_file(folder: Path, name: str) -> Signal:
    """The signal in a file: `{"id": ..., "type": ..., "data": {...}}`, data as an object or as its text.

    Raises:
        FormatError: it can't be read, or is not such an object.
    """
    try:
        parsed = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(
            f"Signal file '{name}' can't be read ({why(error)}).",
            remedy='Write {"id": ..., "type": ..., "data": {...}}.',
        ) from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("type"), str):
        raise FormatError(f"Signal file '{name}' has no text 'type'.", remedy=f"Known: {', '.join(TYPES)}.")
    data = parsed.get("data")
    text = data if isinstance(data, str) or data is None else json.dumps(data, ensure_ascii=False)
    return Signal(str(parsed.get("id") or name.removesuffix(_SUFFIX)), parsed["type"], text)


def _next_time(folder: Path) -> dt.datetime:
    """Now, or just after the newest name that the command gave."""
    now = dt.datetime.now(dt.UTC)
    times = [time for time in (_time(entry.name) for entry in folder.iterdir()) if time is not None]
    newest = max(times, default=now)
    if newest < now:
        return now
    try:
        return newest + dt.timedelta(microseconds=1)
    except OverflowError:
        return newest


def _is_stamped(name: str) -> bool:
    return _time(name) is not None


def _is_settled(name: str, now: dt.datetime) -> bool:
    time = _time(name)
    return time is not None and time < now - _SETTLED


def _time(name: str) -> dt.datetime | None:
    """The time in a name that the command gave; None for any other name."""
    stamp = _STAMP.fullmatch(name)
    try:
        return None if stamp is None else dt.datetime.strptime(stamp[1], _FORM).replace(tzinfo=dt.UTC)
    except ValueError:
        return None
