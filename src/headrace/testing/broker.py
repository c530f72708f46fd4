"""A real Kafka broker for tests of formats, sources and sinks."""

from headrace_emulators.kafka.broker import KafkaBroker

__all__ = ["KafkaBroker"]
