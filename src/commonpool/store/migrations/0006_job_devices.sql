-- What an attempt was given of each of its devices: 0 where that is not known, as of attempts from before.
ALTER TABLE job_attempts ADD COLUMN milli_gpu INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_attempts ADD COLUMN memory_mib INTEGER NOT NULL DEFAULT 0;
