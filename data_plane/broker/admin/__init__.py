"""data_plane.broker.admin: requests of administrators, a module for each API, and the table of all.

- handlers.py: which modules serve which APIs
- alter_configs.py, describe_configs.py, log_threshold.py
- delete_records.py, describe_producers.py, log_dirs.py
- elect_leaders.py, reassignments.py, unregister_broker.py
- describe_cluster.py, describe_quorum.py
"""
