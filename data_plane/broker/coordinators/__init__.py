"""data_plane.broker.coordinators: coordinators over internal topics, and their requests.

- coordinator_log.py, internal_topic.py: leading, loading, appending for any state machine
- groups.py over offsets_topic.py: the coordinator of consumer groups; group_metrics.py
- group_handlers.py, offset_handlers.py, offset_fetch.py: their requests

What a group is and does is data_plane.groups'.
"""
