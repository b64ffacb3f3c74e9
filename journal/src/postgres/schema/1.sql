-- A shard is a store: one row of `shard`, and rows of the tables below that start with its number. Keys and values are those of every
-- engine that stores bytes (see rows.rs), so that a row has one meaning, one order and one checksum wherever it is.
CREATE TABLE subtend.migration (
    version int PRIMARY KEY,
    by text NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE subtend.shard (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    -- Of the rows.
    format bigint NOT NULL,
    -- The claim that may write.
    epoch bigint NOT NULL DEFAULT 0,
    last_lsn bigint NOT NULL DEFAULT 0,
    -- Who made that claim: a number of its own, and words for people.
    owner uuid,
    holder text,
    claimed timestamptz
) WITH (fillfactor = 10); -- A commit updates its shard: with room in the page, no index is touched.
CREATE TABLE subtend.log (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key));
CREATE TABLE subtend.ev (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key));
CREATE TABLE subtend.head (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key))
    WITH (fillfactor = 70);
CREATE TABLE subtend.inflight (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key))
    WITH (fillfactor = 70);
CREATE TABLE subtend.kid (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key));
CREATE TABLE subtend.outbox (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key));
CREATE TABLE subtend.def (shard int NOT NULL, key bytea NOT NULL, value bytea NOT NULL, PRIMARY KEY (shard, key));
