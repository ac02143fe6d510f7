"""data_plane.broker.fetch: records from logs to clients and followers.

- fetch_handler.py: a request's way and its stations, module by module
- projection.py: what may be plugged in between a log and its readers; projected_reads.py
- leader_throttle.py, replica_selector.py: how much followers get, and whom a consumer should ask
- list_offsets.py, offset_for_leader_epoch.py, describe_delayed.py
"""
