"""Writes the Kafka message codecs in data_plane/wire/messages from published schema facts."""
