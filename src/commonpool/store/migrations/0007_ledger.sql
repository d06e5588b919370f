-- The ledger. Times in nanoseconds since the epoch (UTC). A number that may pass 64 bits is number_high × 10^18 + number.

-- usage with `seq`, the order in which records came, and by the time at which attempts ended: an hour is closed with those
-- that ended in it, and with those that came since the last one was.
ALTER TABLE usage RENAME TO usage_before;
CREATE TABLE usage (
    seq                INTEGER PRIMARY KEY,
    request_id         TEXT    NOT NULL,
    attempt            INTEGER NOT NULL,
    tenant             TEXT    NOT NULL,
    app                TEXT    NOT NULL,
    cost_center        TEXT    NOT NULL,
    model              TEXT    NOT NULL,
    version            TEXT    NOT NULL,
    tier               TEXT    NOT NULL,
    endpoint           TEXT    NOT NULL,
    stream             INTEGER NOT NULL,
    pool               TEXT    NOT NULL,
    replica            TEXT    NOT NULL,
    outcome            TEXT    NOT NULL,
    status             INTEGER NOT NULL,
    reason             TEXT    NOT NULL,
    arrived_ns         INTEGER NOT NULL,
    wait_ns            INTEGER NOT NULL,
    first_token_ns     INTEGER NOT NULL,
    total_ns           INTEGER NOT NULL,
    run_ns             INTEGER NOT NULL,
    tokens_in          INTEGER NOT NULL,
    tokens_cached      INTEGER NOT NULL,
    tokens_out         INTEGER NOT NULL,
    token_source       TEXT    NOT NULL,
    milli_gpu          INTEGER NOT NULL,
    milli_gpu_ns       INTEGER NOT NULL,
    micro_per_gpu_hour INTEGER NOT NULL,
    waits              TEXT    NOT NULL,
    milli_gpu_ns_high  INTEGER NOT NULL,
    UNIQUE (request_id, attempt)
);
INSERT INTO usage (
    request_id, attempt, tenant, app, cost_center, model, version, tier, endpoint, stream, pool, replica, outcome, status,
    reason, arrived_ns, wait_ns, first_token_ns, total_ns, run_ns, tokens_in, tokens_cached, tokens_out, token_source,
    milli_gpu, milli_gpu_ns, micro_per_gpu_hour, waits, milli_gpu_ns_high
) SELECT
    request_id, attempt, tenant, app, cost_center, model, version, tier, endpoint, stream, pool, replica, outcome, status,
    reason, arrived_ns, wait_ns, first_token_ns, total_ns, run_ns, tokens_in, tokens_cached, tokens_out, token_source,
    milli_gpu, milli_gpu_ns, micro_per_gpu_hour, waits, milli_gpu_ns_high
FROM usage_before;
DROP TABLE usage_before;
CREATE INDEX usage_arrived ON usage (arrived_ns);
CREATE INDEX usage_ended ON usage ((arrived_ns + total_ns));
-- The few that ran at a quarter of an hour (UTC), as those do that outlast an hour of any time zone.
CREATE INDEX usage_over ON usage ((arrived_ns + total_ns))
    WHERE (arrived_ns + total_ns) / 900000000000 <> (arrived_ns + total_ns - run_ns) / 900000000000;

-- Attempts that run, as they were saved last: record is JSON.
CREATE TABLE running (
    request_id TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    pool       TEXT    NOT NULL,
    record     TEXT    NOT NULL,
    PRIMARY KEY (request_id, attempt)
) WITHOUT ROWID;

-- What was posted of attempts that outlasted an hour: their run in it until until_ns. posted is JSON.
CREATE TABLE parts (
    request_id TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    hour_ns    INTEGER NOT NULL,
    until_ns   INTEGER NOT NULL,
    posted     TEXT    NOT NULL,
    PRIMARY KEY (request_id, attempt, hour_ns)
) WITHOUT ROWID;
CREATE INDEX parts_hour ON parts (hour_ns);

-- What a pool had and whose it was: guaranteed is a JSON object of milli_gpu by account.
CREATE TABLE standings (
    pool       TEXT    NOT NULL,
    start_ns   INTEGER NOT NULL,
    end_ns     INTEGER NOT NULL,
    milli_gpu  INTEGER NOT NULL,
    guaranteed TEXT    NOT NULL,
    PRIMARY KEY (pool, start_ns)
) WITHOUT ROWID;

-- What held devices, by phase.
CREATE TABLE spans (
    pool      TEXT    NOT NULL,
    start_ns  INTEGER NOT NULL,
    id        TEXT    NOT NULL,
    phase     TEXT    NOT NULL,
    model     TEXT    NOT NULL,
    account   TEXT    NOT NULL,
    milli_gpu INTEGER NOT NULL,
    end_ns    INTEGER NOT NULL,
    PRIMARY KEY (pool, start_ns, id, phase)
) WITHOUT ROWID;

-- Measured elsewhere: reading is JSON, its part before posted_until_ns is in the books.
CREATE TABLE readings (
    id              TEXT    NOT NULL PRIMARY KEY,
    pool            TEXT    NOT NULL,
    start_ns        INTEGER NOT NULL,
    end_ns          INTEGER NOT NULL,
    posted_until_ns INTEGER NOT NULL,
    reading         TEXT    NOT NULL
) WITHOUT ROWID;
CREATE INDEX readings_open ON readings (pool, start_ns) WHERE posted_until_ns < end_ns;

-- The hours that are closed. seq: all records up to this one were known. reconciliation is JSON.
CREATE TABLE hours (
    pool           TEXT    NOT NULL,
    hour_ns        INTEGER NOT NULL,
    seq            INTEGER NOT NULL,
    reconciliation TEXT    NOT NULL,
    PRIMARY KEY (pool, hour_ns)
) WITHOUT ROWID;

-- What postings and counts are about, each combination once; kind, accounts and meter are '' where it is counts. So the
-- rows of an hour are small.
CREATE TABLE lines (
    line        INTEGER NOT NULL PRIMARY KEY,
    pool        TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    debit       TEXT    NOT NULL,
    credit      TEXT    NOT NULL,
    meter       TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    app         TEXT    NOT NULL,
    cost_center TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    version     TEXT    NOT NULL,
    tier        TEXT    NOT NULL,
    endpoint    TEXT    NOT NULL,
    stream      INTEGER NOT NULL
);
CREATE INDEX lines_pool ON lines (pool);

-- Rows are only ever added. hour_ns is the hour in whose books a posting stands, about_ns the one that it is about.
CREATE TABLE postings (
    hour_ns       INTEGER NOT NULL,
    line          INTEGER NOT NULL,
    about_ns      INTEGER NOT NULL,
    micro         INTEGER NOT NULL,
    quantity_high INTEGER NOT NULL,
    quantity      INTEGER NOT NULL,
    PRIMARY KEY (hour_ns, line, about_ns, micro)
) WITHOUT ROWID;

CREATE TABLE hourly (
    hour_ns           INTEGER NOT NULL,
    line              INTEGER NOT NULL,
    requests          INTEGER NOT NULL,
    completed         INTEGER NOT NULL,
    attempts          INTEGER NOT NULL,
    tokens_in         INTEGER NOT NULL,
    tokens_cached     INTEGER NOT NULL,
    tokens_out        INTEGER NOT NULL,
    milli_gpu_ns_high INTEGER NOT NULL,
    milli_gpu_ns      INTEGER NOT NULL,
    PRIMARY KEY (hour_ns, line)
) WITHOUT ROWID;

-- Billing periods that are closed, with the bill as it was then.
CREATE TABLE periods (
    name      TEXT    NOT NULL PRIMARY KEY,
    start_ns  INTEGER NOT NULL,
    end_ns    INTEGER NOT NULL,
    closed_ns INTEGER NOT NULL,
    closed_by TEXT    NOT NULL,
    bill      BLOB    NOT NULL
) WITHOUT ROWID;
