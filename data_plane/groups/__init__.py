"""Classic consumer groups and committed offsets, as a state machine over `__consumer_offsets`.

`GroupCoordinator` (coordinator) is the door; requests, answers and what is in between are in
rebalance, membership, offset_commits and group_deletion, the state in group and offsets, the bytes
on disk in record_formats. No I/O, clock or randomness anywhere in this package.
"""
