"""What the admin API says and hears, as structs: the JSON bodies, for the server and for its clients.

Units: `_ns` is nanoseconds (a time is since the epoch in UTC, anything else a length), `milli_gpu` thousandths of a
GPU, `_micro` millionths of the billing currency. GPU time over many GPUs and years outgrows 64 bits, so `gpu_seconds`
is an exact decimal, a string in JSON.
"""
