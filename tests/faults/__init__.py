"""Faults on real processes: kills, pauses, cuts, a database that is away, full disks."""
