"""A write is a hint for workers as soon as it is committed."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connection

from control_plane.celery_app import app
from control_plane.messaging.logic import TopicSpec, do_create_topic
from control_plane.reconciliation import hints
from tests.control_plane.tenants import make_cell, make_tenant

SECONDS_MAX = 20.0
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN control_plane%'"


def listeners() -> int:
    with connection.cursor() as cursor:
        cursor.execute(LISTENERS)
        (count,) = cursor.fetchone()
    return int(count)


@pytest.mark.django_db(transaction=True)
def test_a_write_begins_a_round_before_the_next_beat() -> None:
    make_cell()
    acme = make_tenant("acme")
    before = listeners()
    hints.start()
    try:
        deadline_s = time.monotonic() + SECONDS_MAX
        while listeners() == before:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        do_create_topic(acme.actor, acme.id, "orders", TopicSpec())
        with app.connection_for_read() as broker:
            queue = broker.SimpleQueue("celery")
            message = queue.get(timeout=SECONDS_MAX)
            message.ack()
            queue.close()
        assert message.headers["task"] == hints.RECONCILE
        assert message.headers["eta"] is None
    finally:
        hints.stop()
        for thread in threading.enumerate():
            if thread.name == hints.THREAD:
                thread.join(SECONDS_MAX)
