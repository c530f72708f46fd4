"""A bound on the number of captured tables, for patterns that match more than was meant."""

from __future__ import annotations

import logging

from headrace.errors import CaptureError
from headrace.settings import Settings, option

FAIL, WARN = "fail", "warn"
_LOG = logging.getLogger("headrace.sources")


class GuardrailSettings(Settings):
    """How many tables may be captured."""

    guardrail_collections_max: int = option(
        "The most tables that may be captured, in all databases together; 0 for no bound.",
        default=0,
        minimum=0,
        aliases=("guardrail.collections.max",),
    )
    guardrail_collections_limit_action: str = option(
        "What happens when there are more: `warn` logs it, `fail` stops the run, also where tables come while it runs.",
        default=WARN,
        choices=(WARN, FAIL),
        aliases=("guardrail.collections.limit.action",),
    )


def require_few(settings: Settings, tables: int) -> None:
    """See that no more tables are captured than the options allow.

    Args:
        settings: the source's options; one without a guardrail has no bound.
        tables: how many are captured now.

    Raises:
        CaptureError: there are more, and the options say to stop.
    """
    most = settings.get("guardrail_collections_max", 0)
    if not most or tables <= most:
        return
    sentence = f"{tables} tables are captured, and 'guardrail_collections_max' allows {most}."
    if settings.get("guardrail_collections_limit_action") == FAIL:
        raise CaptureError(sentence, remedy="Name fewer tables in 'tables', or raise the bound.")
    _LOG.warning("%s", sentence)
