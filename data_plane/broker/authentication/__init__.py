"""Who speaks, and what proves it: SASL exchanges, their bounds, and the end of what is revoked.

The exchanges (scram.py, plain.py) are pure state machines: a token in, an outcome out. What is
around them is bounded and slowed here; verifiers come from the metadata image, so that a broker
which cannot reach the metadata store goes on to let its users in.

Deliberately absent: what a principal may do.
"""
