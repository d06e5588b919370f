-- What was taken to be answered later: request is what the core knows of it, sealed what was asked or, once it has a
-- status, what was answered, encrypted; size is its length in bytes.
CREATE TABLE later (
    id       TEXT    NOT NULL PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    request  TEXT    NOT NULL,
    taken_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    sealed   BLOB    NOT NULL
);
