-- Texts that few changes reach: the registry, callers and keys, pins, policy, session keys.
CREATE TABLE toolgate.documents (
    name text PRIMARY KEY,
    -- Of a sequence: a text never has a version again.
    version bigint NOT NULL,
    body text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL
);
CREATE SEQUENCE toolgate.document_versions;

-- Replaces texts, all or none, if they still have the expected versions. Version 0 is that of a missing text. The caller
-- sorts by name, so that rows are locked in one order.
CREATE FUNCTION toolgate.commit_documents(names text[], expected bigint[], bodies text[], replica text)
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    new_version bigint;
    versions bigint[] := '{}';
BEGIN
    FOR at IN 1 .. array_length(names, 1) LOOP
        IF expected[at] = 0 THEN
            INSERT INTO toolgate.documents AS d (name, version, body, changed_by)
                VALUES (names[at], nextval('toolgate.document_versions'), bodies[at], replica)
                ON CONFLICT DO NOTHING RETURNING d.version INTO new_version;
        ELSE
            UPDATE toolgate.documents AS d
                SET version = nextval('toolgate.document_versions'), body = bodies[at], changed_at = now(),
                    changed_by = replica
                WHERE d.name = names[at] AND d.version = expected[at] RETURNING d.version INTO new_version;
        END IF;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another replica has changed %', names[at] USING ERRCODE = 'TG001';
        END IF;
        versions := versions || new_version;
    END LOOP;
    PERFORM pg_notify('toolgate', '');
    RETURN versions;
END $$;

-- Sessions that untrusted content has reached. An empty session is the caller without one, `*` all of its sessions.
CREATE TABLE toolgate.taints (
    caller text NOT NULL,
    session text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (caller, session)
);
CREATE INDEX taints_until ON toolgate.taints (until);

-- Admissions of limits within their window. Losing them admits a window again, so they need no log.
CREATE UNLOGGED TABLE toolgate.admissions (
    key text PRIMARY KEY,
    -- Slices of the window, oldest first: first admission, end, and number.
    firsts timestamptz[] NOT NULL DEFAULT '{}',
    ends timestamptz[] NOT NULL DEFAULT '{}',
    counts int[] NOT NULL DEFAULT '{}',
    until timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX admissions_until ON toolgate.admissions (until);

-- Grants up to `want` admissions. A sliding window: no window, wherever it starts, has more than `most`. Returns the
-- number granted, and the milliseconds to wait if it is none. `hold`: the admissions may be used that much later.
CREATE FUNCTION toolgate.take_tokens(wanted_key text, want int, most int, width interval, hold interval)
RETURNS TABLE (granted int, wait_ms bigint) LANGUAGE plpgsql AS $$
DECLARE
    entry toolgate.admissions;
    moment timestamptz;
    total int := 0;
    size int;
BEGIN
    INSERT INTO toolgate.admissions (key) VALUES (wanted_key) ON CONFLICT DO NOTHING;
    SELECT * INTO entry FROM toolgate.admissions a WHERE a.key = wanted_key FOR UPDATE;
    -- After the wait for the lock.
    moment := clock_timestamp();
    IF entry.key IS NULL THEN
        -- Removed as expired in between.
        RETURN QUERY SELECT 0, 1::bigint;
        RETURN;
    END IF;
    WHILE coalesce(array_length(entry.ends, 1), 0) > 0 AND entry.ends[1] <= moment LOOP
        entry.firsts := entry.firsts[2:];
        entry.ends := entry.ends[2:];
        entry.counts := entry.counts[2:];
    END LOOP;
    SELECT coalesce(sum(c), 0) INTO total FROM unnest(entry.counts) c;
    granted := least(want, most - total);
    IF granted <= 0 THEN
        granted := 0;
        wait_ms := greatest(1, ceil(extract(epoch FROM coalesce(entry.ends[1], moment + width) - moment) * 1000));
        RETURN NEXT;
        RETURN;
    END IF;
    size := coalesce(array_length(entry.ends, 1), 0);
    IF size > 0 AND moment - entry.firsts[size] < width / 16 THEN
        entry.ends[size] := moment + width + hold;
        entry.counts[size] := entry.counts[size] + granted;
    ELSE
        entry.firsts := entry.firsts || moment;
        entry.ends := entry.ends || (moment + width + hold);
        entry.counts := entry.counts || granted;
    END IF;
    UPDATE toolgate.admissions a
        SET firsts = entry.firsts, ends = entry.ends, counts = entry.counts, until = moment + width + hold
        WHERE a.key = wanted_key;
    wait_ms := 0;
    RETURN NEXT;
END $$;

-- The processes of the cluster.
CREATE TABLE toolgate.replicas (
    name text PRIMARY KEY,
    -- Differs at each start.
    run text NOT NULL,
    version text NOT NULL,
    -- Hashes: replicas with equal ones decide alike.
    config text NOT NULL,
    policy text NOT NULL,
    registry text NOT NULL,
    started timestamptz NOT NULL DEFAULT now(),
    seen timestamptz NOT NULL DEFAULT now(),
    drain boolean NOT NULL DEFAULT false
);
