-- Who was allowed or denied what. Rows are only ever added, each with a hash over itself and the one before it; policies
-- is a JSON list. A row stands for count decisions alike, from at_ns until until_ns.
CREATE TABLE audit (
    number   INTEGER NOT NULL PRIMARY KEY,
    at_ns    INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    count    INTEGER NOT NULL,
    caller   TEXT    NOT NULL,
    action   TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    outcome  TEXT    NOT NULL,
    method   TEXT    NOT NULL,
    path     TEXT    NOT NULL,
    peer     TEXT    NOT NULL,
    policies TEXT    NOT NULL,
    hash     BLOB    NOT NULL
);
CREATE INDEX audit_caller ON audit (caller, number);
CREATE INDEX audit_tenant ON audit (tenant, number);
