"""Who may come to the control plane: what must hold between its keys, and the structs made of them."""

from pathlib import Path
from urllib.parse import urlsplit

from commonpool.config.access_keys import WHO
from commonpool.config.outgoing import is_loopback
from commonpool.config.problems import KeyPath, Report, hint, listed, quote
from commonpool.config.roles import PLATFORM_ROLES, TENANT_ROLES
from commonpool.config.secrets import below
from commonpool.config.shape import Values
from commonpool.config.structs import Access, Oidc, Role


def check_access(values: Values, report: Report) -> None:
    """Report what contradicts itself in `access`."""
    section: Values = values.get("access", {})
    oidc: Values = section.get("oidc", {})
    _oidc(section, oidc, report)
    _local(section, values.get("listen", {}), report)
    first: dict[tuple[str, ...], int] = {}
    for number, role in enumerate(section.get("roles", [])):
        if role is not None and report.is_sound(at := ("access", "roles", str(number))):
            _role(role, at, values, report)
            _by_issuer(role, at, oidc, report)
            same = (role["role"], role.get("tenant", ""), *(role.get(key, "") for key in WHO))
            if same in first:
                report.fail(at, f"says the same as access.roles.{first[same]}; remove one")
            first.setdefault(same, number)


def _oidc(section: Values, oidc: Values, report: Report) -> None:
    at = ("access", "oidc")
    said = {key for key in ("issuer", "client_id", "client_secret", "audience") if key in oidc}
    if not said or not report.is_sound(at):
        return
    for key, what in (("issuer", "its URL, like https://id.example"), ("client_id", "this product's id there")):
        if key not in oidc:
            report.fail((*at, key), f"is missing; write {what}")
    if "url" not in section and not report.is_bad(("access", "url")):
        sentence = "is missing; write where browsers reach the control plane, since the issuer sends them back there"
        report.fail(("access", "url"), sentence)
    if "audience" in oidc and oidc["audience"] == oidc.get("client_id"):
        sentence = "is client_id, so whoever logs in somewhere with it would have a bearer token for here"
        report.fail((*at, "audience"), f"{sentence}; let the issuer give another", oidc["audience"])


def _local(section: Values, listen: Values, report: Report) -> None:
    """A listener without TLS whose URL is elsewhere has a proxy in front, and what that passes on may look local."""
    at = ("access", "url")
    url = section.get("url")
    if url is None or report.is_bad(at) or not section.get("local") or listen.get("control_tls"):
        return
    if not is_loopback(urlsplit(url).hostname or ""):
        report.fail(
            at,
            f"{quote(url)} is a proxy's, since the control plane has no TLS of its own, and what a proxy passes on may"
            " look like a program of this machine, which is a platform-admin; set access.local to false",
        )


def _role(role: Values, at: KeyPath, values: Values, report: Report) -> None:
    """Somebody has it, and it is one of where it is."""
    named = [key for key in WHO if key in role]
    if len(named) != 1:
        report.fail(at, f"says {listed(named)} of who has it; write one of {listed(WHO)}")
    tenant, name = role.get("tenant"), role["role"]
    tenants = values.get("tenants", {})
    if tenant is None and name not in PLATFORM_ROLES:
        report.fail((*at, "role"), f"{name} is a role in a tenant; write which under tenant", name)
    elif tenant is not None and name not in TENANT_ROLES:
        sentence = f"{name} is a role on the whole platform; leave tenant out, or write one of {listed(TENANT_ROLES)}"
        report.fail((*at, "role"), sentence, name)
    if tenant is not None and tenant not in tenants and not report.is_bad(("tenants",)):
        report.fail((*at, "tenant"), f"there is no tenant {quote(tenant)}; {hint(tenant, tenants, 'known')}", tenant)


def _by_issuer(role: Values, at: KeyPath, oidc: Values, report: Report) -> None:
    for key in WHO:
        unknown = "issuer" not in oidc and report.is_sound(("access", "oidc"))
        if key in role and key != "account" and unknown and report.is_sound(at):
            report.fail((*at, key), "is what an issuer says, and there is none; write one under access.oidc")


def access(values: Values, folder: Path) -> Access:
    """What the checked values say. Relative paths in it are below `folder`."""
    section = values["access"]
    oidc = section["oidc"]
    return Access(
        local=section["local"],
        url=section.get("url"),
        policies=folder / section["policies"] if "policies" in section else None,
        oidc=Oidc(
            issuer=oidc["issuer"],
            client_id=oidc["client_id"],
            client_secret=below(folder, oidc.get("client_secret")),
            audience=oidc.get("audience"),
            groups=oidc["groups"],
        )
        if "issuer" in oidc
        else None,
        roles=tuple(map(_struct, section.get("roles", []))),
    )


def _struct(role: Values) -> Role:
    by = next(key for key in WHO if key in role)
    return Role(role=role["role"], tenant=role.get("tenant"), by=by, who=role[by])


def describe_access(section: Access) -> dict[KeyPath, str | None]:
    """Every setting of it under its key, as people write it; the roles by who has them."""
    said: dict[KeyPath, str | None] = {
        ("access", "local"): "true" if section.local else "false",
        ("access", "url"): section.url,
        ("access", "policies"): None if section.policies is None else str(section.policies),
    }
    if section.oidc is not None:
        said |= {("access", "oidc", key): getattr(section.oidc, key) for key in Oidc.__struct_fields__}
    held: dict[str, list[str]] = {}
    for role in section.roles:
        where = "" if role.tenant is None else f" in {role.tenant}"
        held.setdefault(f"{role.by} {role.who}", []).append(f"{role.role}{where}")
    return said | {("access", "roles", who): ", ".join(sorted(roles)) for who, roles in held.items()}
