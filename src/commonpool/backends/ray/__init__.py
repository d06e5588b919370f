"""Ray as the place where replicas run: its nodes as the core's, and an actor for each replica.

Which node and which devices is the core's decision. Ray is kept from deciding otherwise by one placement group a node,
which takes all of the node's GPUs for the product; actors are put into it by the core's choice.
"""
