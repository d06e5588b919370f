-- What is wrong, or was until lately: an alert from when it fired, what each channel was told of it, as JSON.
CREATE TABLE alerts (
    alert    TEXT    NOT NULL,
    fired_ns INTEGER NOT NULL,
    content  TEXT    NOT NULL,
    PRIMARY KEY (alert, fired_ns)
) WITHOUT ROWID;

-- Alerts that nobody is told of until then; with a tenant, that tenant's channels alone are not told.
CREATE TABLE silences (
    alert       TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    until_ns    INTEGER NOT NULL,
    silenced_by TEXT    NOT NULL,
    PRIMARY KEY (alert, tenant)
) WITHOUT ROWID;
