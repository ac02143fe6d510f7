"""Doubles for tests of applications: a broker in memory and a clock that tests move.

    async def test_pays():
        broker = MemoryBroker()
        broker.create_topic("orders", partitions=3)
        async with broker.client() as client:
            await client.topic("orders").send("o-17", key="k")
            ...

The client is the real one; only what carries its messages is replaced.
"""

from tidewheel.testing.clock import VirtualClock
from tidewheel.testing.memory import MemoryBroker
from tidewheel.testing.redrives import Letters, Moved

__all__ = ["Letters", "MemoryBroker", "Moved", "VirtualClock"]
