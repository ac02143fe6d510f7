"""Dead letters are put back, or purged: operations of the partitions of dead-letter topics. See
docs/retries.md.

- operations: what is asked for, and the records that say how far it is; marks, fold: that, out of
  the log.
- matching, letters: which letters, and the batch that moves them.
- runner: the leader's work; asked: what it is asked to do; limits: how often a letter is redriven.
"""
