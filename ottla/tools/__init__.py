"""Command-line tools under Kafka's names. None yet: Kafka's own work against Ottla."""
