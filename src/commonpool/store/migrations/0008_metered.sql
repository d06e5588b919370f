-- What an attempt took beside GPU time: bodies in bytes, CPU time in nanoseconds, memory in MiB × seconds. Attempts from
-- before have 0.
ALTER TABLE usage ADD COLUMN bytes_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN bytes_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN cpu_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN memory_mib_s INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage ADD COLUMN gpu_memory_mib_s INTEGER NOT NULL DEFAULT 0;
