"""What each isolation level demands of a configuration beside its nodes' levels (docs/isolation-levels.md)."""

import ipaddress
from urllib.parse import urlsplit

from commonpool.config.machines import Machines
from commonpool.config.outgoing import literal, within
from commonpool.config.problems import KeyPath, Report, listed
from commonpool.config.reader import entries
from commonpool.config.shape import Values


def check_isolation(values: Values, machines: dict[str, Machines], report: Report) -> None:
    """Report models that serve several tenants of a node, networks that are not a node's own, and engines outside."""
    for path, pool, content in entries(values, "pools", report):
        level = content.get("isolation")
        if level in ("node", "network") and content.get("rule") != "dedicated":
            _one_tenant(path, pool, level, values, report)
        if level == "network":
            its = machines.get(pool, Machines())
            _networks(its, report)
            for at, name, model in entries(values, "models", report):
                if model.get("pool") == pool and "urls" in model.get("engine", {}):
                    _reached(at, name, model["engine"], its, report)
    _own_networks(values, report)


def _one_tenant(path: KeyPath, pool: str, level: str, values: Values, report: Report) -> None:
    """Where a node serves one tenant, so does each model."""
    tenants = [(name, tenant.get("tenant", {})) for name, tenant in values.get("tenants", {}).items()]
    its = [(name, quota) for name, quota in tenants if quota.get("pool") == pool]
    for _, model, served in entries(values, "models", report):
        if served.get("pool") != pool:
            continue
        users = [name for name, quota in its if model in quota.get("models", [model])]
        if len(users) > 1 and report.is_sound(("tenants",)):
            sentence = f"is {level}, so a node serves one tenant, and model {model} serves {listed(users)}"
            report.fail((*path, "isolation"), f"{sentence}; list the models of each under tenant.models", level)
            return


def _networks(its: Machines, report: Report) -> None:
    """A node that is to have a network of its own says which."""
    for node in its.nodes:
        at = ("nodes", node.name, "network")
        if node.isolation == "network" and node.network is None and not report.is_bad(at):
            report.fail(at, f"is missing, and its pool {node.pool} demands isolation network; write its own network")


def _own_networks(values: Values, report: Report) -> None:
    """No two nodes are in one network, but those of a pool that belongs to one tenant."""
    said = [
        (ipaddress.ip_network(node["network"]), path, name, node["pool"])
        for path, name, node in entries(values, "nodes", report)
        if {"network", "pool"} <= node.keys()
    ]
    # Two networks are apart, or one is in the other: in this order that is the last one that is in none.
    said.sort(key=lambda each: (each[0].version, int(each[0].network_address), each[0].prefixlen))
    outer: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None
    first = owner = ""
    for network, path, name, pool in said:
        if outer is not None and outer.version == network.version and outer.overlaps(network):
            if pool != owner or values.get("pools", {}).get(pool, {}).get("rule") != "dedicated":
                sentence = f"{network} is not its own: node {first} is in {outer}; give each node a network of its own"
                report.fail((*path, "network"), sentence, str(network))
        else:
            outer, first, owner = network, name, pool


def _reached(path: KeyPath, model: str, engine: Values, its: Machines, report: Report) -> None:
    """An engine elsewhere is reached over TLS, or at an address in its node's own network."""
    networks = {node.name: node.network for node in its.nodes}
    devices = engine.get("devices", [])
    for number, url in enumerate(engine["urls"]):
        if url is None:
            continue
        node = next(iter(devices[number]), "").partition("/")[0] if number < len(devices) and devices[number] else ""
        why = outside(url, networks.get(node))
        if why:
            at = (*path, "engine", "urls", str(number))
            report.fail(
                at,
                f"{url} {why}, and pool {its.nodes[0].pool if its.nodes else ''} demands isolation network;"
                f" reach model {model} over https, or at an address in that network",
                url,
            )


def outside(url: str, network: str | None) -> str:
    """Why an engine at this URL is not kept apart as isolation `network` demands; "" where it is."""
    parts = urlsplit(url)
    address = literal(parts.hostname or "")
    if parts.scheme == "https" or (address is not None and address.is_loopback):
        return ""
    if address is None:
        return "is plain HTTP to a name, which may lead anywhere"
    if network is None or not within(address, (network,)):
        return f"is plain HTTP outside the network of its node ({network or 'none is known'})"
    return ""
