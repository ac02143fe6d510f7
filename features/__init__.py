"""What tenants get beyond Kafka, each a room of its own that is plugged into the broker.

A feature brings folds over logs, projections that consumers read through, properties of topics,
and rules for what may be appended. It imports the data plane's rooms below the server; nothing in
the data plane imports a feature. What plugs one in is the program that composes the broker.

What folds of several features share that keep runs on the disk: run_files, run_merging,
fold_manifest (their snapshots), fold_upkeep (by threads).
"""
