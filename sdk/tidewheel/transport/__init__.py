"""What carries messages: librdkafka for real brokers, memory for tests, one port for both."""
