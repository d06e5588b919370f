-- The key that a tenant's secrets are encrypted with, itself encrypted (wrapped) with the master key of this id.
CREATE TABLE data_keys (
    tenant     TEXT    NOT NULL PRIMARY KEY,
    created_ns INTEGER NOT NULL,
    master     TEXT    NOT NULL,
    wrapped    BLOB    NOT NULL
) WITHOUT ROWID;

-- Tenants that have switched on a log of their prompts, and how long they keep what is in it.
CREATE TABLE prompt_logs (
    tenant      TEXT    NOT NULL PRIMARY KEY,
    since_ns    INTEGER NOT NULL,
    keep_ns     INTEGER NOT NULL,
    switched_by TEXT    NOT NULL
) WITHOUT ROWID;

-- What was asked and answered, encrypted; size is its length in bytes.
CREATE TABLE prompts (
    tenant     TEXT    NOT NULL,
    at_ns      INTEGER NOT NULL,
    request_id TEXT    NOT NULL,
    app        TEXT    NOT NULL,
    model      TEXT    NOT NULL,
    endpoint   TEXT    NOT NULL,
    status     INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    sealed     BLOB    NOT NULL,
    PRIMARY KEY (tenant, at_ns, request_id)
);
CREATE INDEX prompts_request ON prompts (tenant, request_id);
