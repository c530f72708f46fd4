"""How a source is: whether it still captures, up to when, and how long what it captured is kept for us."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from headrace.errors import HeadraceError


class CaptureState(StrEnum):
    """Whether changes that are committed in the source get to where they can be read."""

    CAPTURING = "capturing"
    LAGGING = "lagging"
    """They do, but late."""
    NOT_CAPTURING = "not capturing"
    UNKNOWN = "unknown"


_BY_WEIGHT = (CaptureState.CAPTURING, CaptureState.UNKNOWN, CaptureState.LAGGING, CaptureState.NOT_CAPTURING)


@dataclass(frozen=True)
class Health:
    """What one database says of its capture. Times are the source's, as instants.

    Args:
        state: whether it captures.
        sentence: the same in words; empty for a source that can't say.
        remedy: what to do about it; empty when all is well.
        checked: what the source's clock showed when it was asked.
        captured_until: everything that was committed before this can be read; None when unknown.
        waiting_since: when the oldest change was committed that is captured and not in all sinks yet; None when there
            is none, or when it is not known how far the sinks are.
        quiet_until: nothing waits that was committed before this; None where the source does not say, or where its
            head stands still while nothing is committed.
        waiting_commits: how many captured commits are not in all sinks yet; not all are counted where they are very
            many. Null when it is not known how far the sinks are, or where commits can't be counted.
        retention_seconds: how long a captured change is kept; None when unknown or for ever.
        headroom_seconds: how long until the source may delete a change that is not in all sinks yet, at all its tables;
            the whole retention when nothing waits, zero or less when it may happen at any moment.
        lost: tables of which needed changes are deleted already.
        uncaptured: tables that were captured, that the options still mean, and that are not captured now.
        log_used_bytes: how much of the source's own log is in use; read only while capture is not well, because what
            is not captured stays there.
        retained_bytes: how much of its own log the source keeps because changes in it are not in all sinks yet; None
            where it keeps the log by another rule.
        headroom_bytes: how much log may be written until the source drops what is kept so; None without a bound, zero
            or less when it may happen at any moment.
        not_seen: what could not be read, with the permission that it needs.
    """

    state: CaptureState = CaptureState.UNKNOWN
    sentence: str = ""
    remedy: str = ""
    checked: dt.datetime | None = None
    captured_until: dt.datetime | None = None
    waiting_since: dt.datetime | None = None
    quiet_until: dt.datetime | None = None
    waiting_commits: int | None = None
    retention_seconds: float | None = None
    headroom_seconds: float | None = None
    lost: tuple[str, ...] = ()
    uncaptured: tuple[str, ...] = ()
    log_used_bytes: int | None = None
    retained_bytes: int | None = None
    headroom_bytes: int | None = None
    not_seen: tuple[str, ...] = ()

    @property
    def behind_seconds(self) -> float | None:
        """How long ago everything was captured, by the source's own clock."""
        if self.checked is None or self.captured_until is None:
            return None
        return max(0.0, (self.checked - self.captured_until).total_seconds())

    @property
    def at_risk(self) -> bool:
        """Whether changes that are needed are deleted, or may be at any moment."""
        headrooms = [left for left in (self.headroom_seconds, self.headroom_bytes) if left is not None]
        return bool(self.lost) or any(left <= 0 for left in headrooms)

    @property
    def headroom_is_small(self) -> bool:
        """Whether three quarters of the retention are used up, in time or in bytes, or changes are lost."""
        if self.headroom_seconds is not None and self.retention_seconds is not None:
            return self.at_risk or self.headroom_seconds < self.retention_seconds / 4
        if self.headroom_bytes is not None and self.retained_bytes is not None:
            return self.at_risk or self.headroom_bytes < self.retained_bytes / 3
        return self.at_risk

    @property
    def is_late(self) -> bool:
        """Whether it is known that capture is behind, so that having all that was captured is not having all."""
        return self.state in (CaptureState.LAGGING, CaptureState.NOT_CAPTURING)


def unasked(error: HeadraceError) -> Health:
    """That of a source that did not answer."""
    return Health(CaptureState.UNKNOWN, f"The source can't be asked: {error.message}", error.remedy)


def combined(healths: Mapping[str, Health]) -> Health:
    """One health that says the worst of several databases, with the database's name where there is more than one."""
    if len(healths) < 2:
        return next(iter(healths.values()), Health())
    name, worst = max(healths.items(), key=lambda item: _BY_WEIGHT.index(item[1].state))
    furthest = max(healths.values(), key=lambda health: health.behind_seconds or 0.0)
    tightest = min(
        (health for health in healths.values() if health.headroom_seconds is not None),
        key=lambda health: health.headroom_seconds or 0.0,
        default=Health(),
    )
    waiting = [health.waiting_commits for health in healths.values() if health.waiting_commits is not None]
    sizes = [health.log_used_bytes for health in healths.values() if health.log_used_bytes is not None]
    retained = [health.retained_bytes for health in healths.values() if health.retained_bytes is not None]
    bytes_left = [health.headroom_bytes for health in healths.values() if health.headroom_bytes is not None]
    return replace(
        worst,
        sentence=f"Database '{name}': {worst.sentence}" if worst.sentence else "",
        checked=furthest.checked,
        captured_until=furthest.captured_until,
        waiting_since=min((h.waiting_since for h in healths.values() if h.waiting_since is not None), default=None),
        waiting_commits=sum(waiting) if waiting else None,
        retention_seconds=tightest.retention_seconds,
        headroom_seconds=tightest.headroom_seconds,
        lost=tuple(f"{database}.{table}" for database, health in healths.items() for table in health.lost),
        uncaptured=tuple(f"{database}.{table}" for database, health in healths.items() for table in health.uncaptured),
        log_used_bytes=sum(sizes) if sizes else None,
        retained_bytes=sum(retained) if retained else None,
        headroom_bytes=min(bytes_left, default=None),
        not_seen=tuple(dict.fromkeys(part for health in healths.values() for part in health.not_seen)),
    )


def span_text(seconds: float) -> str:
    """`12 s`, `4 min`, `1 h 12 min`, `3 d 4 h`: a span of time in its two largest units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if hours < 1:
        return f"{minutes} min"
    if days < 1:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def size_text(size: float) -> str:
    """`512 KB`, `12 MB`, `1.5 GB`: bytes in a unit that is easily read."""
    if size < 2**20:
        return f"{size / 2**10:,.0f} KB"
    return f"{size / 2**20:,.0f} MB" if size < 2**30 else f"{size / 2**30:,.1f} GB"
