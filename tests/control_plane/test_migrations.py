"""Migrations run on the database of an earlier version that has been used: ten thousand topics with
their outbox and audit. Nothing is lost, what has to be carried over is, and it takes seconds.

The earlier tables are made by the migrations up to FORMER, and filled in SQL: models know only the
newest ones.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator

import psycopg
import pytest

from stack.child import child_environment
from stack.postgres import PostgresServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TENANTS, TOPICS = 100, 10_000
MIGRATE_SECONDS_MAX = 30.0
# The first version of each app's tables; what is not named has only one, or is made by others.
FORMER = {
    "accounts": "0002",
    "quotas": "0002",
    "cells": "0001",
    "access": "0002",
    "messaging": "0001",
    "operations": "0001",
    "usage": "0001",
}
DECLARED = "generation, observed_generation, status, status_reason, created_at, updated_at"
NOW_READY = "1, 1, 'ready', '', now(), now()"
FILL = f"""
INSERT INTO accounts_user (id, password, is_superuser, email, name, is_active, is_staff,
    date_joined)
SELECT 'user_' || lpad(t::text, 26, '0'), 'x', false, 'owner-' || t || '@x.example', '', true,
    false, now() FROM generate_series(1, {TENANTS}) t;
INSERT INTO accounts_organization (id, name, slug, state, state_reason, plan_id, outbox_sequence,
    {DECLARED})
SELECT 'org_' || lpad(t::text, 26, '0'), 'Tenant ' || t, 'tenant-' || t, 'active', '',
    (SELECT id FROM quotas_plan WHERE is_default), {TOPICS // TENANTS}, {NOW_READY}
FROM generate_series(1, {TENANTS}) t;
INSERT INTO accounts_membership (id, organization_id, user_id, role, created_at, updated_at)
SELECT 'mem_' || lpad(t::text, 26, '0'), 'org_' || lpad(t::text, 26, '0'),
    'user_' || lpad(t::text, 26, '0'), 'owner', now(), now() FROM generate_series(1, {TENANTS}) t;
INSERT INTO accounts_invitation (id, organization_id, email, role, token_hash, expires_at,
    created_at, updated_at)
SELECT 'inv_' || lpad(t::text, 26, '0'), 'org_' || lpad(t::text, 26, '0'),
    'guest-' || t || '@x.example', 'viewer', md5(t::text), now() + interval '7 days', now(), now()
FROM generate_series(1, {TENANTS}) t;
INSERT INTO access_serviceaccount (id, organization_id, name, description, role, created_at,
    updated_at)
SELECT 'sa_' || lpad(t::text, 26, '0'), 'org_' || lpad(t::text, 26, '0'), 'app', '', 'viewer',
    now(), now() FROM generate_series(1, {TENANTS}) t;
INSERT INTO access_apikey (id, organization_id, service_account_id, name, scopes, secret_hash,
    verifiers, networks, generation, observed_generation, status, status_reason, created_at,
    updated_at)
SELECT 'key_' || lpad(t::text, 26, '0'), 'org_' || lpad(t::text, 26, '0'),
    'sa_' || lpad(t::text, 26, '0'), '', CASE WHEN t % 2 = 0 THEN '{{rest}}' ELSE '{{kafka}}' END
    ::varchar[], md5(t::text), '{{}}', '{{}}', 1, 0, 'provisioning', '', now(), now()
FROM generate_series(1, {TENANTS}) t;
INSERT INTO messaging_topic (id, organization_id, name, partitions, replication_factor, configs,
    managed_by, deletion_protection, takes_over, observed, {DECLARED})
SELECT 'top_' || lpad(t::text, 26, '0'), 'org_' || lpad((t % {TENANTS} + 1)::text, 26, '0'),
    'topic-' || t, 1 + t % 6, 0, jsonb_build_object('retention.ms', t::text), 'api', false, false,
    '{{}}', {NOW_READY} FROM generate_series(1, {TOPICS}) t;
INSERT INTO operations_outboxentry (organization_id, sequence, kind, resource_id, generation,
    attempts, not_before, last_error, done_at, created_at, updated_at)
SELECT organization_id, row_number() OVER (PARTITION BY organization_id ORDER BY id), 'topic', id,
    1, 0, now(), '', now(), now(), now() FROM messaging_topic;
INSERT INTO operations_auditevent (id, organization_id, at, actor_kind, actor_id, actor_name,
    address, action, resource_id, resource_name, changes)
SELECT 'aud_' || substr(id, 5), organization_id, now(), 'user', 'user_x', 'somebody', '10.0.0.1',
    'topic.create', id, name, '{{}}' FROM messaging_topic;
INSERT INTO operations_idempotentanswer (actor_id, key_hash, request_hash, status_code, answer,
    expires_at)
SELECT 'user_x', md5(t::text), 'x', NULL, NULL, now() FROM generate_series(1, 1000) t;
"""
# What is to be the same afterwards, columns that were there before.
KEPT = {
    "messaging_topic": "id, organization_id, name, partitions, configs::text, managed_by, status, "
    "generation, observed_generation",
    "operations_outboxentry": "id, organization_id, sequence, resource_id, done_at",
    "operations_auditevent": "id, organization_id, at, action, resource_id, host(address)",
    "accounts_organization": "id, slug, state, plan_id, outbox_sequence",
    "accounts_membership": "id, organization_id, user_id, role",
    "accounts_invitation": "id, organization_id, email, token_hash",
    "access_apikey": "id, organization_id, service_account_id, scopes::text, secret_hash",
}


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """Of an empty database."""
    name = f"former_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield postgres_server.dsn_of(name)
    with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def manage(url: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "control_plane", *words],
        env=child_environment(
            {
                "DJANGO_SETTINGS_MODULE": "control_plane.settings.development",
                "DATABASE_URL": url,
            }
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows_of(connection: psycopg.Connection, table: str) -> list[tuple[object, ...]]:
    query = f"SELECT {KEPT[table]} FROM {table} ORDER BY id"
    return connection.execute(query.encode()).fetchall()


def test_ten_thousand_topics_are_migrated(url: str) -> None:
    for app, name in FORMER.items():
        manage(url, "migrate", app, name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(FILL.encode())
        before = {table: rows_of(connection, table) for table in KEPT}
    assert len(before["messaging_topic"]) == TOPICS
    assert len(before["operations_auditevent"]) == TOPICS
    pending = manage(url, "showmigrations", "--plan").count("[ ]")
    assert pending >= 10, "the former version is one with something to migrate"
    began_s = time.monotonic()
    manage(url, "migrate")
    took_s = time.monotonic() - began_s
    assert took_s <= MIGRATE_SECONDS_MAX, f"{took_s:.1f} s"
    with psycopg.connect(url, autocommit=True) as connection:
        for table, rows in before.items():
            assert rows_of(connection, table) == rows, table

        def count(query: str) -> int:
            row = connection.execute(query.encode()).fetchone()
            assert row is not None
            return int(row[0])

        # Keys for REST alone are ready, since no cell is told of them; the others wait for theirs.
        keys = "SELECT count(*) FROM access_apikey WHERE status = "
        assert count(f"{keys}'ready' AND scopes = '{{rest}}'") == TENANTS // 2
        assert count(f"{keys}'provisioning' AND scopes = '{{kafka}}'") == TENANTS // 2
        # Who was invited has got his mail.
        assert count("SELECT count(*) FROM accounts_invitation WHERE mailed_at IS NULL") == 0
        assert count("SELECT count(*) FROM messaging_topic WHERE incarnation <> 1") == 0
        assert count("SELECT count(*) FROM operations_idempotentanswer") == 0
    assert manage(url, "showmigrations", "--plan").count("[ ]") == 0
    # Models say nothing that no migration has made.
    manage(url, "makemigrations", "--check", "--dry-run")
