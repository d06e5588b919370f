"""The decisions, pure: no I/O, no clock, no randomness. Times and seeds are arguments.

`machine.Machine.handle(event, now)` takes an event (`events`) and returns effects (`effects`). The live gateway and
the simulator run this same code.
"""
