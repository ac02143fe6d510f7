"""data_plane.broker.produce: records from clients into logs.

- produce_handler.py: the request's way, partition by partition
- produce_checks.py: what is looked at before the append, on the loop or in a thread
- produce_waits.py: answers that wait until the records are safe; produce_response.py: as bytes
- init_producer_id.py: numbers for idempotent producers
"""
