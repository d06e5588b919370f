-- What an attempt waited for, in order: a JSON list of [cause, name, nanoseconds], as core.model.Wait. Rows from before
-- have none.
ALTER TABLE usage ADD COLUMN waits TEXT NOT NULL DEFAULT '[]';
