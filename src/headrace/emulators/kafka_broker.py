"""The name that `headrace_emulators.kafka.broker` had."""

from headrace_emulators.kafka.broker import KafkaBroker

__all__ = ["KafkaBroker"]
