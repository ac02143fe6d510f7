"""Acknowledgements of tasks to a Valkey that has gone away: none.

kombu keeps what a worker has taken and not acknowledged. When the connection is lost, it gives that
back over the connection which is being closed, and what ends afterwards is acknowledged over the
closed one. Either raises what Celery takes for a bug of its own, and the worker ends. Tasks are
hints here, and the next beat makes another one: so nothing is given back or acknowledged then.
"""

from __future__ import annotations

from kombu.transport.redis import Channel, QoS


class QoSOfHints(QoS):
    """As kombu's, but that a closed channel has nothing to acknowledge to."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        if not self.channel.closed:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not self.channel.closed:
            super().reject(delivery_tag, requeue=requeue)


def use_hints() -> None:
    """In this process, from the next connection on."""
    Channel.QoS = QoSOfHints
