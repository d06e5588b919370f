"""What is kept: usage records, keys, applied configurations.

`journal` makes a record durable on the event loop, `writer` moves it into the store, `contract` says what a store is;
`sqlite` and `postgres` are those there are, over the statements in `sql`, and `memory` for tests and simulations.
"""
