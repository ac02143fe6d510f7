"""Delayed and scheduled messages: hidden until they are due, delivered once. See docs/delayed.md.

- times: what `tw-delay` and `tw-deliver-at` say; hidden: how a batch with such records is stored.
- wheel, runs, pending_set, snapshot: what is pending of one log, in bounded memory; names: ids.
- fold: that, out of the log.
- commands, judgement, judging: what is cancelled and moved to another time; outcomes: what was.
- originals, stored_messages, run_search: what is pending, looked up.
- visibility: what readers see.
- firing, due_batch: what is due is delivered; metrics: how many, and how late.
"""
