"""The product on a Ray cluster: the core in one named actor, a gateway on every node.

The core actor runs the very `app.Product`; only its data plane is elsewhere. A gateway has a `branch.RemoteDesk`, which
batches what happens there into calls of the core actor, where a `counter.Counter` stands at the product's own desk for
it. When the core is killed Ray restarts it; it recovers from the store, adopts the replicas that live, and the gateways
tell what runs and submit again what waits.
"""
