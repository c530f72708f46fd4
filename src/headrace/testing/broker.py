"""A real Kafka broker for tests of formats, sources and sinks."""

from headrace.emulators.kafka_broker import KafkaBroker

__all__ = ["KafkaBroker"]
