"""Who uses how much, and who has to wait or is refused: the implementation of request/quotas.py.

- rates.py: rates and buckets as numbers, without knowing of what
- client_limits.py: client quotas, as Apache Kafka counts them
- tenant_rates.py: what tenants use per second, and their floors
- shares.py, share_exchange.py: how brokers share the caps of tenants
- held.py: what tenants hold of what is counted, here and elsewhere; stored.py: what they store
- quota_manager.py: what is asked about each request
"""
