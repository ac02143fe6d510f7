"""Benchmarks: Tidewheel and Apache Kafka under the same librdkafka load, in turn, in one run."""
