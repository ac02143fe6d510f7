"""Who uses how much, and who has to wait or is refused: the implementation of request/quotas.py.

- rates.py: rates and buckets as numbers, without knowing of what
- client_limits.py: client quotas, as Apache Kafka counts them
- quota_manager.py: what is asked about each request
"""
