"""data_plane.broker.request: how a request becomes a call of a handler, and an answer bytes.

- api.py: handlers, their table, `Deferred`, the connection as a handler sees it
- dispatch.py: frames to handlers; large_requests.py, request_work.py: in slices, or in a thread
- request_gate.py, principal.py, namespaces.py: what may be handled, who speaks, and which names
- quotas.py, throttling.py, budget.py: who has to wait, and what one namespace may take
- frames.py, splicing.py: answers as bytes
- timers.py, waiting.py, turns.py, few_at_once.py, wall_clock.py: time and turns, as data
- topic_names.py, refusal.py, partition_errors.py, authorized_operations.py: what answers share

Knows no topic, partition or group. Every other room of the broker may import it.
"""
