-- Nodes share the shards of a database. A node has a lease by the clock of the server, and its claims of shards name that lease.
CREATE TABLE subtend.node (
    name text PRIMARY KEY,
    -- Drawn at each start: a lease that ended is never renewed.
    lease uuid NOT NULL UNIQUE,
    -- Where other nodes forward requests to.
    address text NOT NULL,
    version text NOT NULL,
    labels text[] NOT NULL,
    joined timestamptz NOT NULL DEFAULT now(),
    expires timestamptz NOT NULL
);
-- The lease under which the shard is claimed; none of a process that is not a node.
ALTER TABLE subtend.shard ADD COLUMN lease uuid;
-- Whether nodes claim it. Others belong to who names them.
ALTER TABLE subtend.shard ADD COLUMN shared boolean NOT NULL DEFAULT false;
-- Only nodes with this label claim it, such as those that have a directory; none: every node.
ALTER TABLE subtend.shard ADD COLUMN label text;
-- Finds the shard of a session.
CREATE INDEX head_session ON subtend.head (key);
-- The shard of a session whose id follows from an idempotency key, chosen before the session is written: a command that two nodes
-- receive at once reaches one shard.
CREATE TABLE subtend.placement (key bytea PRIMARY KEY, shard int NOT NULL, made timestamptz NOT NULL DEFAULT now());
-- With it nodes sign the requests that they forward.
CREATE TABLE subtend.secret (one boolean PRIMARY KEY DEFAULT true CHECK (one), value bytea NOT NULL);
INSERT INTO subtend.secret (value) VALUES (uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
