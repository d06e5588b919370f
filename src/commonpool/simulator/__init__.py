"""The simulator: real traces and generated tenants through the very machine that decides in production.

`workload` is what is asked (`traces` reads it, `synthetic` generates it), `cluster` what it is asked of (`presets` has
figures for known models and GPUs), `replicas` the model of an engine, `run` the clock, `recording` a log to replay.
"""
