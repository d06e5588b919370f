"""What each tenant may use, worked out once for each configuration, so that a request costs a few look-ups."""

import msgspec

from commonpool.config.structs import Config
from commonpool.core.model import Request
from commonpool.gateway.errors import ApiError, listing, model_not_found, shown
from commonpool.gateway.identity import Principal
from commonpool.gateway.wire import Ask

_ANY_TIER = (None, "auto", "default")


class _View(msgspec.Struct, frozen=True):
    """One tenant: its models, its default tier (the one of highest priority), and the cost centre of each app."""

    models: frozenset[str]
    tiers: frozenset[str]
    default_tier: str
    cost_centers: dict[str, str]


class Rules:
    """The rules of one configuration. Immutable: a new configuration makes a new one."""

    __slots__ = ("_views",)

    def __init__(self, config: Config) -> None:
        policy = config.policy
        self._views: dict[str, _View] = {}
        for name, tenant in policy.tenants.items():
            cost_centers = {app.name: app.cost_center for app in config.apps.get(name, {}).values()}
            default = max(sorted(tenant.priority), key=tenant.priority.__getitem__, default="")
            models = frozenset(policy.models_of(tenant))
            self._views[name] = _View(models, frozenset(tenant.priority), default, cost_centers)

    def models(self, principal: Principal) -> frozenset[str]:
        """The models that a key may use. Raises ApiError where its tenant is no more."""
        models = self._view(principal).models
        return models if principal.models is None else models.intersection(principal.models)

    def request(self, request_id: str, principal: Principal, ask: Ask, bytes_in: int) -> Request:
        """The request as the core sees it; `bytes_in` is the size of its body.

        Raises ApiError for a model or a tier that is not open to the key.
        """
        view = self._view(principal)
        model = ask.model
        if model not in view.models or (principal.models is not None and model not in principal.models):
            raise model_not_found(model, self.models(principal))
        return Request(
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
        )

    def _view(self, principal: Principal) -> _View:
        view = self._views.get(principal.tenant)
        if view is None:
            raise ApiError(
                403,
                "tenant_not_found",
                f"The key's tenant {shown(principal.tenant)} is not in the configuration any more.",
            )
        return view


def _tier(view: _View, principal: Principal, wanted: str | None) -> str:
    if wanted in _ANY_TIER or wanted is None:
        if principal.tier is None:
            return view.default_tier
        if principal.tier not in view.tiers:
            raise ApiError(
                403,
                "tier_not_found",
                f"The key's tier {shown(principal.tier)} is not open to its tenant any more; {listing(view.tiers)}.",
            )
        return principal.tier
    if wanted not in view.tiers:
        raise ApiError(
            400,
            "tier_not_found",
            f"The service_tier {shown(wanted)} is not open to this tenant; {listing(view.tiers)}.",
            param="service_tier",
        )
    return wanted
