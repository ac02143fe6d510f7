-- The metadata store of one cell: an image as snapshot plus commits, and the leases beside it.
-- docs/cell.md describes the tables, docs/adr/0009-metadata-in-postgres.md says why they are few.
-- All names are unqualified: the search path names the schema.

-- Which store this is, and the counter. Its one row is locked from the moment that a commit gets
-- its number until that commit is visible. A sequence would not do: numbers would be visible out
-- of order, and a reader that has seen 8 would never look for the 7 that comes later.
CREATE TABLE cell (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    identity uuid NOT NULL,
    -- Identities that this store continues, after `tidewheel cell recover`.
    ancestors uuid[] NOT NULL DEFAULT '{}',
    cluster_id text NOT NULL,
    seq bigint NOT NULL
);

-- json, not jsonb: text comes back as it was sent, and configurations may hold any character.
CREATE TABLE commits (
    seq bigint PRIMARY KEY,
    request_id text NOT NULL UNIQUE,
    controller_epoch bigint,
    changes json NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE snapshots (
    seq bigint PRIMARY KEY,
    image json NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Room on each page for the next version of a row, so that renewals touch no index.
CREATE TABLE sessions (
    node_id integer PRIMARY KEY,
    incarnation_id text NOT NULL,
    renewals bigint NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 25);

-- Not in `cell`: a renewal must not wait for a commit.
CREATE TABLE controller (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch bigint NOT NULL DEFAULT 0,
    -- NULL when the last holder gave the lease up.
    node_id integer,
    incarnation_id text,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 25);
INSERT INTO controller DEFAULT VALUES;

-- One commit. A function, so that it is one round trip and one transaction of the server's own: a
-- broker that is cut off in the middle cannot leave the counter locked.
CREATE FUNCTION apply_commit(
    p_identity uuid,
    p_expected_seq bigint,
    p_request_id text,
    p_controller_epoch bigint,
    p_changes json,
    OUT outcome text,
    OUT current_seq bigint,
    OUT current_epoch bigint
) LANGUAGE plpgsql AS $$
DECLARE
    current_identity uuid;
    holder integer;
BEGIN
    SELECT cell.identity, cell.seq INTO current_identity, current_seq FROM cell FOR UPDATE;
    IF current_identity IS DISTINCT FROM p_identity THEN
        outcome := 'other store';
        RETURN;
    END IF;
    -- Each statement from here on sees everything that was committed before the lock was ours.
    SELECT epoch, node_id INTO current_epoch, holder FROM controller;
    IF EXISTS (SELECT FROM commits WHERE request_id = p_request_id) THEN
        outcome := 'known';
    ELSIF p_controller_epoch IS NOT NULL
        AND (holder IS NULL OR p_controller_epoch <> current_epoch) THEN
        outcome := 'stale controller';
    ELSIF p_expected_seq <> current_seq THEN
        outcome := 'conflict';
    ELSE
        outcome := 'committed';
        current_seq := current_seq + 1;
        INSERT INTO commits (seq, request_id, controller_epoch, changes)
            VALUES (current_seq, p_request_id, p_controller_epoch, p_changes);
        UPDATE cell SET seq = current_seq;
        PERFORM pg_notify(current_schema(), current_seq::text);
    END IF;
END $$;

-- A broker's session, and the controller lease if it wants that. `p_lease` runs by this server's
-- clock, read when the row is written: now() would be when the transaction began.
CREATE FUNCTION heartbeat(
    p_identity uuid,
    p_node_id integer,
    p_incarnation_id text,
    p_lease interval,
    p_wants_controller boolean,
    OUT current_identity uuid,
    OUT current_seq bigint,
    OUT lease_node_id integer,
    OUT lease_incarnation_id text,
    OUT lease_epoch bigint,
    OUT all_sessions json
) LANGUAGE plpgsql AS $$
BEGIN
    SELECT identity, seq INTO current_identity, current_seq FROM cell;
    IF current_identity IS DISTINCT FROM p_identity THEN
        RETURN;
    END IF;
    INSERT INTO sessions (node_id, incarnation_id, renewals, expires_at)
        VALUES (p_node_id, p_incarnation_id, 1, clock_timestamp() + p_lease)
        ON CONFLICT (node_id) DO UPDATE SET
            incarnation_id = excluded.incarnation_id,
            renewals = sessions.renewals + 1,
            expires_at = clock_timestamp() + p_lease;
    -- The conditions are read again when the row had to be waited for: one of two wins.
    IF p_wants_controller THEN
        UPDATE controller SET
            epoch = CASE
                WHEN node_id = p_node_id AND incarnation_id = p_incarnation_id THEN epoch
                ELSE epoch + 1
            END,
            node_id = p_node_id,
            incarnation_id = p_incarnation_id,
            expires_at = clock_timestamp() + p_lease
        WHERE node_id IS NULL
            OR (node_id = p_node_id AND incarnation_id = p_incarnation_id)
            OR expires_at <= clock_timestamp();
    ELSE
        UPDATE controller SET node_id = NULL, incarnation_id = NULL, expires_at = '-infinity'
        WHERE node_id = p_node_id AND incarnation_id = p_incarnation_id;
    END IF;
    IF NOT FOUND THEN
        -- A session that a crash of this server forgets is renewed half a second later. A lease
        -- is a promise to others and waits for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT node_id, incarnation_id, epoch
        INTO lease_node_id, lease_incarnation_id, lease_epoch
        FROM controller WHERE node_id IS NOT NULL AND expires_at > clock_timestamp();
    SELECT json_agg(json_build_array(node_id, incarnation_id, renewals))
        INTO all_sessions FROM sessions;
END $$;

-- A newer snapshot, after which what is older than it and not needed by the feed may go.
CREATE FUNCTION keep_snapshot(
    p_identity uuid,
    p_seq bigint,
    p_image json,
    p_commits_kept bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- All functions look at `cell` first: so nobody can wait in a circle with whoever locks it.
    IF NOT EXISTS (SELECT FROM cell WHERE identity = p_identity AND seq >= p_seq) THEN
        RETURN;
    END IF;
    INSERT INTO snapshots (seq, image) VALUES (p_seq, p_image) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        DELETE FROM snapshots WHERE seq < p_seq;
        DELETE FROM commits WHERE seq <= p_seq - p_commits_kept;
        DELETE FROM sessions WHERE expires_at < clock_timestamp() - interval '1 day';
    END IF;
END $$;
