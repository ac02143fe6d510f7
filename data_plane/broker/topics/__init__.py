"""data_plane.broker.topics: topics made, grown, deleted and told of.

- create_topics.py, create_partitions.py, delete_topics.py, auto_creation.py
- requested_replicas.py: where the replicas of new partitions go
- metadata.py, metadata_encoding.py, describe_topic_partitions.py
"""
