"""Retries and dead letters: a nack brings a message back to its subscription. See docs/retries.md.

- policy: after which delay, and how often; commands: what a client's records say.
- positions: what was nacked, in bounded memory; nacks: that, out of the log; snapshot.
- judgement: what becomes of a command; originals: what it was said of, out of the logs;
  stored_form: the record that is stored for it.
"""
