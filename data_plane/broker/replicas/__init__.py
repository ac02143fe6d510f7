"""data_plane.broker.replicas: the replicas of partitions that this broker holds.

- topic_partitions.py: all of them, opened, led, followed and closed as the image says; by threads:
  log_loads.py, log_cuts.py
- due_openings.py: those that are opened because something is due in them
- replication.py: fetching from leaders; isr_changes.py: what leaders propose becomes commits
- replica_repair.py, failed_directories.py, stray_logs.py, log_ends.py: what disks have done to them
- log_maintenance.py, fsync_batches.py: retention, compaction and syncs, off the loop
- read_index.py, leader_probe.py: whether a leader still leads

One replica's own state is data_plane.replica's.
"""
