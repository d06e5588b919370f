-- Parts of guarantees that were released, by whom and why, and when and by whom that was undone (NULL: it holds).
CREATE TABLE releases (
    number      INTEGER PRIMARY KEY,
    tenant      TEXT    NOT NULL,
    milli_gpu   INTEGER NOT NULL,
    released_ns INTEGER NOT NULL,
    released_by TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    undone_ns   INTEGER,
    undone_by   TEXT
);
CREATE INDEX releases_in_force ON releases (tenant) WHERE undone_ns IS NULL;

-- What is known of each tenant's demand: peaks is a JSON list of milli_gpu, hour by hour from first_hour (Unix) on.
CREATE TABLE demand (
    tenant     TEXT    NOT NULL PRIMARY KEY,
    first_hour INTEGER NOT NULL,
    peaks      TEXT    NOT NULL
) WITHOUT ROWID;
