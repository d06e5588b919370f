-- Accounts of the product's own. password is an argon2id hash, '' where there is none; changed_ns is when it was set, or
-- the account made, disabled or enabled, last.
CREATE TABLE accounts (
    name        TEXT    NOT NULL PRIMARY KEY,
    kind        TEXT    NOT NULL,
    password    TEXT    NOT NULL,
    created_ns  INTEGER NOT NULL,
    changed_ns  INTEGER NOT NULL,
    disabled_ns INTEGER,
    note        TEXT    NOT NULL
) WITHOUT ROWID;

-- Who is logged in. digest is SHA-256 of what the browser has; a session of an account is of the account as it was at
-- account_changed_ns. Of others: who the issuer said it is, and member_of, a JSON list of groups.
CREATE TABLE sessions (
    digest             BLOB    NOT NULL PRIMARY KEY,
    account            TEXT    NOT NULL,
    account_changed_ns INTEGER NOT NULL,
    issuer             TEXT    NOT NULL,
    subject            TEXT    NOT NULL,
    email              TEXT    NOT NULL,
    member_of          TEXT    NOT NULL,
    created_ns         INTEGER NOT NULL,
    used_ns            INTEGER NOT NULL,
    expires_ns         INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX sessions_by_person ON sessions (account, issuer, subject);
