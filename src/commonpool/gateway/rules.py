"""What each tenant may use, worked out once for each configuration, so that a request costs a few look-ups."""

import msgspec

from commonpool.config.structs import Config, EmbeddedEngine
from commonpool.core.limits import size_limits
from commonpool.core.model import NO_LIMITS, Limits, Policy, Request
from commonpool.gateway.errors import ApiError, listing, model_not_found, shown
from commonpool.gateway.identity import Principal
from commonpool.gateway.wire import Ask

_ANY_TIER = (None, "auto", "default")


class _View(msgspec.Struct, frozen=True):
    """One tenant: its models, its tiers (the first is that of highest priority), the cost centre of each app, and what
    is allowed to each request, of the tenant and of those apps that have limits of their own. `fallbacks` are the
    models that may answer in place of one, directly or in the end.
    """

    models: frozenset[str]
    tiers: tuple[str, ...]
    cost_centers: dict[str, str]
    sizes: Limits
    app_sizes: dict[str, Limits]
    fallbacks: dict[str, frozenset[str]]


class Rules:
    """The rules of one configuration. Immutable: a new configuration makes a new one."""

    __slots__ = ("_text_only", "_views")

    def __init__(self, config: Config) -> None:
        policy = config.policy
        self._text_only = {name for name, model in config.models.items() if isinstance(model.engine, EmbeddedEngine)}
        self._views: dict[str, _View] = {}
        for name, tenant in policy.tenants.items():
            cost_centers = {app.name: app.cost_center for app in config.apps.get(name, {}).values()}
            tiers = sorted(tenant.priority, key=lambda tier: (-tenant.priority[tier], tier))
            models = frozenset(policy.models_of(tenant))
            app_sizes = {app: size_limits(tenant.limits, limits) for app, limits in tenant.apps.items()}
            fallbacks = {model: _fallbacks(policy, model) for model in models}
            self._views[name] = _View(
                models, tuple(tiers), cost_centers, size_limits(tenant.limits), app_sizes, fallbacks
            )

    def models(self, principal: Principal) -> frozenset[str]:
        """The models that a key may use. Raises ApiError where its tenant is no more."""
        models = self._view(principal).models
        return models if principal.models is None else models.intersection(principal.models)

    def request(self, request_id: str, principal: Principal, ask: Ask, bytes_in: int) -> tuple[Request, Limits]:
        """The request as the core sees it, and what is allowed to it by itself; `bytes_in` is the size of its body.

        One that says nothing of its output is bounded to what it may have. Raises ApiError for a model or a tier that
        is not open to the key, and for pictures and sound where the model takes none: its engine would fail on them.
        """
        view = self._view(principal)
        model = ask.model
        if model not in view.models or (principal.models is not None and model not in principal.models):
            raise model_not_found(model, self.models(principal))
        if model in self._text_only and (part := ask.other_than_text()) is not None:
            message = f"`messages` has a part of type {shown(part)}, and model {model} takes text alone."
            raise ApiError(400, "unsupported_content", message, param="messages")
        sizes = view.app_sizes.get(principal.app, view.sizes)
        if principal.sizes is not NO_LIMITS:
            sizes = size_limits(sizes, principal.sizes)
        if sizes.tokens_out_max is not None:
            ask.bound(sizes.tokens_out_max)
        request = Request(
            request_id,
            principal.tenant,
            principal.app,
            model,
            _tier(view, principal, ask.service_tier),
            ask.endpoint,
            ask.tokens_in,
            ask.tokens_out_max,
            ask.sequences,
            ask.stream,
            view.cost_centers.get(principal.app, ""),
            bytes_in,
            principal.key_id,
            principal.models is None or view.fallbacks[model].issubset(principal.models),
        )
        return request, sizes

    def _view(self, principal: Principal) -> _View:
        view = self._views.get(principal.tenant)
        if view is None:
            raise ApiError(
                403,
                "tenant_not_found",
                f"The key's tenant {shown(principal.tenant)} is not in the configuration any more.",
            )
        return view


def _fallbacks(policy: Policy, model: str) -> frozenset[str]:
    found: list[str] = []
    other = policy.deployments[model].fallback
    while other is not None and other not in found:
        found.append(other)
        other = policy.deployments[other].fallback
    return frozenset(found)


def _tier(view: _View, principal: Principal, wanted: str | None) -> str:
    own = principal.tiers
    tiers = view.tiers if own is None else tuple(tier for tier in view.tiers if tier in own)
    if wanted is not None and wanted not in _ANY_TIER:
        if wanted not in tiers:
            raise ApiError(
                400,
                "tier_not_found",
                f"The service_tier {shown(wanted)} is not open to this key; {listing(tiers)}.",
                param="service_tier",
            )
        return wanted
    if principal.tier is None and tiers:
        return tiers[0]
    if principal.tier is None or principal.tier not in tiers:
        which = "tiers are" if principal.tier is None else f"tier {shown(principal.tier)} is"
        raise ApiError(
            403, "tier_not_found", f"The key's {which} not open to its tenant any more; {listing(view.tiers)}."
        )
    return principal.tier
