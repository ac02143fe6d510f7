-- Heartbeats bring this server's clock, which brokers hold theirs against. And a lease that ends later
-- than it is long shows that the clock was set back: it is cut, or nobody could take the lease of a
-- controller that has died until the clock is where it was.
ALTER TABLE controller ADD COLUMN lease interval;

DROP FUNCTION heartbeat(uuid, integer, text, interval, boolean);

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
    OUT all_sessions json,
    OUT store_ms bigint
) LANGUAGE plpgsql AS $$
DECLARE
    held_epoch bigint;
    epoch_now bigint;
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
    UPDATE controller SET expires_at = clock_timestamp() + coalesce(lease, p_lease)
        WHERE expires_at > clock_timestamp() + coalesce(lease, p_lease);
    -- The conditions are read again when the row had to be waited for: one of two wins.
    IF p_wants_controller THEN
        SELECT epoch INTO held_epoch FROM controller
            WHERE node_id = p_node_id AND incarnation_id = p_incarnation_id;
        UPDATE controller SET
            epoch = CASE
                WHEN node_id = p_node_id AND incarnation_id = p_incarnation_id THEN epoch
                ELSE epoch + 1
            END,
            node_id = p_node_id,
            incarnation_id = p_incarnation_id,
            expires_at = clock_timestamp() + p_lease,
            lease = p_lease
        WHERE node_id IS NULL
            OR (node_id = p_node_id AND incarnation_id = p_incarnation_id)
            OR expires_at <= clock_timestamp()
        RETURNING epoch INTO epoch_now;
    ELSE
        UPDATE controller SET node_id = NULL, incarnation_id = NULL, expires_at = '-infinity'
        WHERE node_id = p_node_id AND incarnation_id = p_incarnation_id;
    END IF;
    IF NOT FOUND OR epoch_now = held_epoch THEN
        -- What a crash of this server forgets is renewed a moment later, or the lease ends sooner
        -- than its holder believes: its commits name an epoch, and they are refused then. A new
        -- epoch must never be given out twice, so it waits for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    SELECT node_id, incarnation_id, epoch
        INTO lease_node_id, lease_incarnation_id, lease_epoch
        FROM controller WHERE node_id IS NOT NULL AND expires_at > clock_timestamp();
    SELECT json_agg(json_build_array(node_id, incarnation_id, renewals))
        INTO all_sessions FROM sessions;
    store_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
END $$;
