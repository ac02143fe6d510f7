"""data_plane.broker.authorization: what a request needs, and what is answered to who lacks it.

- requirements.py: for each API the operation, the resource and the error code; the guards by API
- topic_guards.py, group_guards.py, cluster_guards.py: the guards, by what the answer is about

What follows from ACLs says request/authorizer.py, how a guard stands before a handler
request/guards.py.
"""
