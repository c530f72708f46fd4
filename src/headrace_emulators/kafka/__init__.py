"""A Kafka broker for tests and demos."""
