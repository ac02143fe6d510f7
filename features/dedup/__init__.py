"""A message id is taken once within a window: `dedup.window.ms`. See docs/dedup.md.

- id_runs: ids on the disk, sorted; remembered_ids: those of a log, in bounded memory; snapshot.
- fold: that, out of the log.
- judgement: what of a batch is a duplicate, and what is stored of it.
- forgetting: ids are let go by the date, and runs merged, by threads; metrics.
"""
