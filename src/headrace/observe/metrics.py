"""A running pipeline's numbers under stable names, for whatever collects them."""

from __future__ import annotations

from headrace.observe.progress import Progress
from headrace.sources.health import CaptureState


def metrics(progress: Progress) -> dict[str, float]:
    """The numbers by name, in seconds, bytes and counts; what is not known is left out.

    Names follow Prometheus' customs, and stay:

    - `headrace_batches_total`, `headrace_rows_total`: in all sinks since the start of the run;
    - `headrace_rows_per_second`: over the last seconds;
    - `headrace_lag_seconds`, `headrace_capture_behind_seconds`: of the sinks, and of the source's own capture;
    - `headrace_capturing`: 1, or 0 when the source does not capture;
    - `headrace_complete_until_seconds`: the completeness of all tables, since 1970;
    - `headrace_retention_seconds`, `headrace_retention_headroom_seconds`: how long changes are kept, and how long those
      that are not in the sinks yet will be;
    - `headrace_lost_tables`: tables of which needed changes are deleted;
    - `headrace_source_log_used_bytes`: while capture is not well;
    - `headrace_unreadable_messages_total`, and the same with a label `reason`: messages that could not be read;
      `headrace_dead_letters_total`: how many of them the dead-letter sink has; `headrace_no_event_messages_total`:
      messages that say that nothing happened. For topics, and from the first such message on.
    """
    health = progress.health
    found: dict[str, float | None] = {
        "headrace_batches_total": progress.batches,
        "headrace_rows_total": progress.rows,
        "headrace_rows_per_second": progress.rows_per_second,
        "headrace_lag_seconds": progress.lag_seconds,
        "headrace_complete_until_seconds": (
            None if progress.complete_until is None else progress.complete_until.timestamp()
        ),
    }
    if health is not None:
        known = health.state is not CaptureState.UNKNOWN
        found |= {
            "headrace_capturing": float(health.state is not CaptureState.NOT_CAPTURING) if known else None,
            "headrace_capture_behind_seconds": health.behind_seconds,
            "headrace_retention_seconds": health.retention_seconds,
            "headrace_retention_headroom_seconds": health.headroom_seconds,
            "headrace_lost_tables": len(health.lost),
            "headrace_source_log_used_bytes": health.log_used_bytes,
        }
    messages = progress.messages
    if messages:
        found |= {
            "headrace_unreadable_messages_total": messages.unreadable,
            "headrace_no_event_messages_total": messages.no_event,
            "headrace_dead_letters_total": messages.dead_letters,
        }
        found |= {_labelled(reason): count for reason, count in messages.errors.items()}
    return {name: float(value) for name, value in found.items() if value is not None}


def _labelled(reason: str) -> str:
    escaped = reason.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'headrace_unreadable_messages_total{{reason="{escaped}"}}'
