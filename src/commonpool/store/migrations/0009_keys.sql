-- Of an admin key, the role that it has and the account that owns it; '' is platform-admin, and nobody's. tiers and
-- networks are JSON lists, NULL for all; limits is a JSON object of those that the key has.
ALTER TABLE keys ADD COLUMN role TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN account TEXT NOT NULL DEFAULT '';
ALTER TABLE keys ADD COLUMN tiers TEXT;
ALTER TABLE keys ADD COLUMN networks TEXT;
ALTER TABLE keys ADD COLUMN limits TEXT NOT NULL DEFAULT '{}';
