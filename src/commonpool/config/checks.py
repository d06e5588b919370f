"""What must hold between the keys: names that exist, sums that fit, work that can run. Everything wrong is reported.

Works on what the reader made, defaults filled in; absent values have been reported already and prove nothing here.
"""

from collections import Counter
from collections.abc import Iterable
from urllib.parse import urlsplit

from commonpool.config.access import check_access
from commonpool.config.alerts import check_alerts, hosts
from commonpool.config.billing import check_billing
from commonpool.config.capacity import check_capacity
from commonpool.config.defaults import ASLEEP
from commonpool.config.hardware import check_hardware
from commonpool.config.isolation import check_isolation
from commonpool.config.machines import machines_of
from commonpool.config.outgoing import literal, refusal
from commonpool.config.problems import KeyPath, Report, hint, quote
from commonpool.config.quantities import format_gpu
from commonpool.config.quotas import lineage
from commonpool.config.reader import entries
from commonpool.config.shape import Values

_ANY_HOST = ("0.0.0.0", "::")


def check(values: Values, report: Report) -> None:
    """Report every contradiction between keys, and warn of what is hardly meant."""
    _listeners(values, report)
    _tls(values, report)
    _outgoing(values, report)
    _job_users(values, report)
    _secrets(values, report)
    _references(values, report)
    check_billing(values, report)
    check_access(values, report)
    check_alerts(values, report)
    _models(values, report)
    _scaling(values, report)
    _fallbacks(values, report)
    machines = machines_of(values, report)
    check_capacity(values, machines, report)
    check_hardware(values, machines, report)
    _dedicated(values, report)
    check_isolation(values, machines, report)
    _reach(values, report)
    if not values.get("tenants") and not report.is_bad(("tenants",)):
        report.warn((), "there is no tenant, so every request is refused; add one under tenants")


def _listeners(values: Values, report: Report) -> None:
    listen = values.get("listen", {})
    if not {"gateway", "control"} <= listen.keys():
        return
    gateway, control = listen["gateway"], listen["control"]
    same_host = gateway.host == control.host or gateway.host in _ANY_HOST or control.host in _ANY_HOST
    if gateway.port == control.port != 0 and same_host:
        report.fail(("listen", "control"), f"{control} is taken by listen.gateway ({gateway}); use another port")


def _secrets(values: Values, report: Report) -> None:
    named = values.get("secrets", {})
    at = ("secrets", "master_key")
    if "previous_master_key" in named and "master_key" not in named and not report.is_bad(at):
        report.fail(at, "is missing, and there is a previous one; write where the key is that comes after it")
    for path, _, tenant in entries(values, "tenants", report):
        if tenant.get("queue", {}).get("later") and "master_key" not in named and not report.is_bad(at):
            report.fail(
                (*path, "queue", "later"),
                "keeps prompts until they are answered, encrypted, and there is no key for it; set secrets.master_key",
            )


def _tls(values: Values, report: Report) -> None:
    """A listener that is to speak TLS has what it needs for that: an empty one would be plain HTTP."""
    for listener in ("gateway_tls", "control_tls"):
        at, files = ("listen", listener), values.get("listen", {}).get(listener, {})
        for key in ("certificate", "key"):
            if report.is_said(at) and key not in files and report.is_sound((*at, key)) and not report.is_bad(at):
                report.fail((*at, key), "is missing; write the PEM file, or leave the whole of it out")


def _outgoing(values: Values, report: Report) -> None:
    """What the configuration names may be connected to, as far as that shows before names are looked up."""
    destinations = tuple(values["outgoing"]) if "outgoing" in values and report.is_sound(("outgoing",)) else None
    named = [
        ((*path, "engine", "urls", str(number)), url)
        for path, _, model in entries(values, "models", report)
        for number, url in enumerate(model.get("engine", {}).get("urls", []))
    ]
    issuer = values.get("access", {}).get("oidc", {}).get("issuer")
    collector = values.get("observe", {}).get("traces", {}).get("endpoint")
    named += [(("access", "oidc", "issuer"), issuer), (("observe", "traces", "endpoint"), collector)]
    places = [(at, url, urlsplit(url).hostname) for at, url in named if url]
    for at, url, host in (*places, *hosts(values)):
        address = literal(host) if host else None
        why = refusal(host, address, destinations) if host and address is not None else ""
        if why:
            report.fail(at, why[:1].lower() + why[1:].removesuffix("."), url)


def _job_users(values: Values, report: Report) -> None:
    """Each user is one tenant's, and what its jobs run cannot be an administrator by being on this machine."""
    users = values.get("jobs", {}).get("users", {})
    first: dict[str, str] = {}
    for tenant, user in users.items():
        at = ("jobs", "users", tenant)
        _known(tenant, at, "tenant", values.get("tenants", {}), report)
        if user == "root":
            report.fail(at, "is root, which may do anything; name a user of its own", user)
        elif user in first:
            report.fail(at, f"{user} is the user of tenant {first[user]}; give each tenant a user of its own", user)
        first.setdefault(user, tenant)
    if users and values.get("access", {}).get("local"):
        report.fail(
            ("jobs", "users"),
            "keeps jobs from what is the product's, and on this machine whoever shows no credential is an "
            "administrator; set access.local to false",
        )


def _references(values: Values, report: Report) -> None:
    """Every name that is used is defined."""
    for path, _, node in entries(values, "nodes", report):
        _exists(node, path, "pool", values.get("pools"), report)
    for path, _, model in entries(values, "models", report):
        _exists(model, path, "pool", values.get("pools"), report)
    for path, name, group in entries(values, "groups", report):
        _exists(group, path, "parent", values.get("groups"), report)
        if name in values.get("tenants", {}):
            report.fail(path, f"{name} is a tenant's name too, and a loan's lender would be either; rename one of them")
    for path, _, tenant in entries(values, "tenants", report):
        quota, at = tenant.get("tenant", {}), (*path, "tenant")
        _exists(quota, at, "pool", values.get("pools"), report)
        _exists(quota, at, "group", values.get("groups", {}), report)
        _tenant_models(quota, at, values, report)
        for tier in tenant.get("queue", {}).get("priority", {}):
            _known(tier, (*path, "queue", "priority", tier), "tier", values.get("tiers"), report)
    for key in ("gpu_hour", "lending"):
        for pool in values.get("prices", {}).get(key, {}):
            _known(pool, ("prices", key, pool), "pool", values.get("pools"), report)


def _exists(holder: Values, path: KeyPath, key: str, known: Iterable[str] | None, report: Report) -> None:
    if key in holder:
        _known(holder[key], (*path, key), "group" if key == "parent" else key, known, report)


def _known(name: str, path: KeyPath, noun: str, known: Iterable[str] | None, report: Report) -> None:
    if known is not None and name not in known:
        report.fail(path, f"there is no {noun} {quote(name)}; {hint(name, known, 'known')}", name)


def _tenant_models(quota: Values, path: KeyPath, values: Values, report: Report) -> None:
    models, pools = values.get("models"), values.get("pools", {})
    for number, name in enumerate(quota.get("models", [])):
        if name is None:
            continue
        at = (*path, "models", str(number))
        _known(name, at, "model", models, report)
        pool = (models or {}).get(name, {}).get("pool")
        if pool in pools and "pool" in quota and pool != quota["pool"]:
            sentence = f"model {quote(name)} is in pool {pool}, and this tenant's pool is {quota['pool']}"
            report.fail(at, f"{sentence}; list models of its own pool", name)


def _models(values: Values, report: Report) -> None:
    """Each model's own shape, and no engine twice."""
    first: dict[str, str] = {}
    for path, name, model in entries(values, "models", report):
        if model.get("kv_tokens", model.get("context", 0)) < model.get("context", 0):
            shown = str(model["kv_tokens"])
            sentence = f"{shown} is less than context ({model['context']}), so one sequence would not fit"
            report.fail((*path, "kv_tokens"), f"{sentence}; write at least that", shown)
        engine = model.get("engine", {})
        urls = engine.get("urls", [])
        counts = [key for key in ("replicas", "replicas_max") if urls and model.get(key, len(urls)) != len(urls)]
        if counts:
            sentence = f"is {model[counts[0]]}, but there are {len(urls)} urls, one a replica; leave {counts[0]} out"
            report.fail((*path, counts[0]), sentence, str(model[counts[0]]))
        for number, url in enumerate(urls):
            if url is not None and url in first:
                at = (*path, "engine", "urls", str(number))
                report.fail(at, f"{url} is already an engine of model {first[url]}; an engine serves one model", url)
            first[url] = name


def _scaling(values: Values, report: Report) -> None:
    """How many replicas there may be agrees with when they are there."""
    for path, _, model in entries(values, "models", report):
        residency, fewest = model.get("residency"), model.get("replicas")
        attached = "urls" in model.get("engine", {})
        if attached and residency not in (None, "resident"):
            sentence = f"is {residency}, and attached engines are always there; leave it out"
            report.fail((*path, "residency"), sentence, residency)
        if residency is None or fewest is None or attached:
            continue
        if residency in ASLEEP and fewest:
            sentence = f"is {fewest}, and residency {residency} keeps none while nobody asks; leave it out"
            report.fail((*path, "replicas"), sentence, str(fewest))
        elif residency not in ASLEEP and not fewest:
            sentence = f"is 0, and residency {residency} keeps replicas ready; write 1, or residency: on_demand"
            report.fail((*path, "replicas"), sentence, "0")
        elif fewest > model.get("replicas_max", fewest):
            sentence = f"{fewest} is more than replicas_max ({model['replicas_max']}); raise that or lower this"
            report.fail((*path, "replicas"), sentence, str(fewest))


def _fallbacks(values: Values, report: Report) -> None:
    """Who answers in a model's place is another model of its pool, and in the end one that has no fallback."""
    models = values.get("models", {})
    for path, name, model in entries(values, "models", report):
        other, at = model.get("fallback"), (*path, "fallback")
        if other is None:
            continue
        _known(other, at, "model", models, report)
        pool = models.get(other, {}).get("pool")
        if other == name:
            report.fail(at, "is the model itself; name another, or leave it out", other)
        elif pool is not None and pool != model.get("pool", pool):
            report.fail(at, f"is in pool {pool}, and this model in {model['pool']}; name one of its own pool", other)
        else:
            line = [name]
            while (after := models.get(line[-1], {}).get("fallback")) is not None and after not in line:
                line.append(after)
            # Each member of a circle sees all of it; the first by name tells.
            if after == name and name == min(line):
                report.fail(at, f"leads back to itself ({' → '.join([*line, name])}); let one of them have none")


def _dedicated(values: Values, report: Report) -> None:
    """A dedicated pool belongs to exactly one tenant."""
    owners = [tenant.get("tenant", {}).get("pool") for tenant in values.get("tenants", {}).values()]
    count = Counter(owners)
    for path, name, pool in entries(values, "pools", report):
        unknown = report.is_bad(("tenants",)) or (None in count and count[name] == 0)
        if pool.get("rule") == "dedicated" and count[name] != 1 and not unknown:
            sentence = f"is dedicated, so exactly one tenant has it as its pool, and {count[name] or 'none'} do"
            report.fail((*path, "rule"), sentence, "dedicated")


def _reach(values: Values, report: Report) -> None:
    """Every tenant can run what it may use: its caps hold at least one slot of each model."""
    for path, _, tenant in entries(values, "tenants", report):
        quota, at = tenant.get("tenant", {}), (*path, "tenant")
        if "elastic_cap" not in quota or "pool" not in quota:
            continue
        gpus = values.get("pools", {}).get(quota["pool"], {}).get("gpus")
        if gpus is not None and quota["elastic_cap"] > max(gpus, quota.get("guaranteed", 0)):
            cap = format_gpu(quota["elastic_cap"])
            report.warn((*at, "elastic_cap"), f"{cap} is more than pool {quota['pool']} has ({format_gpu(gpus)})")
        # The tightest of the tenant's own cap and those of the groups above it.
        caps = [(quota["elastic_cap"], "elastic_cap", (*at, "elastic_cap"))]
        caps += [
            (values["groups"][group]["elastic_cap"], f"group {group}'s elastic_cap", (*at, "group"))
            for group in lineage(quota.get("group"), values)
            if "elastic_cap" in values["groups"][group]
        ]
        cap, whose, where = min(caps, key=lambda each: each[0])
        served = [model for _, model, _ in _usable(quota, values, report)]
        if not served and "models" not in quota and not report.is_bad(("models",)):
            report.warn(
                (*at, "pool"), f"pool {quota['pool']} serves no model, so every request of this tenant is refused"
            )
        for needed, model, slots in _usable(quota, values, report):
            if cap * slots < needed:
                sentence = f"{whose} {format_gpu(cap)} is less than one slot of model {model}"
                detail = f"({format_gpu(needed)} a replica / {slots} slots), so that model could never run"
                report.fail(
                    where, f"{sentence} {detail}; raise it, or leave {model} out of tenant.models", format_gpu(cap)
                )


def _usable(quota: Values, values: Values, report: Report) -> Iterable[tuple[int, str, int]]:
    """milli_gpu of a replica, name and slots of each model that the tenant may use, as far as they are known."""
    for _, name, model in entries(values, "models", report):
        allowed = name in quota["models"] if "models" in quota else True
        if allowed and model.get("pool") == quota["pool"] and {"gpu", "slots"} <= model.keys():
            yield model["gpu"], name, model["slots"]
