"""What is kept: usage records, keys, applied configurations.

`journal` makes a record durable on the event loop, `writer` moves it into the store, `contract` says what a store is;
`sqlite` and `memory` are the two there are.
"""
