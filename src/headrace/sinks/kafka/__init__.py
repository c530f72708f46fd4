"""Topics of Kafka."""
