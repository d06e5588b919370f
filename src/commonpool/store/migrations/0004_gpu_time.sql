-- GPU time over 64 bits: what an attempt used is milli_gpu_ns_high × 10^18 + milli_gpu_ns. Eight GPUs pass 2^63 after
-- two weeks. Rows from before are all below it.
ALTER TABLE usage ADD COLUMN milli_gpu_ns_high INTEGER NOT NULL DEFAULT 0;
