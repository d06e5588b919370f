-- How long requests waited, by when they ended: span_ns is 10 minutes, an hour or a day, start_ns since the epoch (UTC).
-- refused is a JSON object of counts by reason; wait, first_token and unserved are sketches (core.sketch).
CREATE TABLE waits (
    span_ns              INTEGER NOT NULL,
    start_ns             INTEGER NOT NULL,
    tenant               TEXT    NOT NULL,
    model                TEXT    NOT NULL,
    tier                 TEXT    NOT NULL,
    completed            INTEGER NOT NULL,
    failed               INTEGER NOT NULL,
    cancelled            INTEGER NOT NULL,
    abandoned            INTEGER NOT NULL,
    queue_promised       INTEGER NOT NULL,
    queue_late           INTEGER NOT NULL,
    first_token_promised INTEGER NOT NULL,
    first_token_late     INTEGER NOT NULL,
    refused              TEXT    NOT NULL,
    wait                 BLOB    NOT NULL,
    first_token          BLOB    NOT NULL,
    unserved             BLOB    NOT NULL,
    PRIMARY KEY (span_ns, start_ns, tenant, model, tier)
) WITHOUT ROWID;

-- How far it is made, one row: all records up to seq are in it; before rolled_ns hours and days are made of it; of before
-- windows_ns there are only hours and days, of before hours_ns only days.
CREATE TABLE waits_made (
    seq        INTEGER NOT NULL,
    rolled_ns  INTEGER NOT NULL,
    windows_ns INTEGER NOT NULL,
    hours_ns   INTEGER NOT NULL
);
INSERT INTO waits_made VALUES (0, 0, 0, 0);
