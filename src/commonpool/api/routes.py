"""The whole API: every endpoint of every noun, and the application they make."""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from commonpool import __version__
from commonpool.api import (
    accounts,
    advice,
    alerts,
    audit,
    bill,
    config,
    decisions,
    events,
    grants,
    health,
    http,
    jobs,
    keys,
    login,
    metrics,
    nodes,
    openapi,
    periods,
    placement,
    prompts,
    readings,
    reconcile,
    releases,
    replicas,
    requests,
    secrets,
    sessions,
    status,
    terms,
    timeline,
    trace,
    usage,
    waits,
)
from commonpool.api.operations import Operations

ENDPOINTS: tuple[http.Endpoint, ...] = (
    *health.ENDPOINTS,
    *status.ENDPOINTS,
    *terms.ENDPOINTS,
    *decisions.ENDPOINTS,
    *events.ENDPOINTS,
    *replicas.ENDPOINTS,
    *nodes.ENDPOINTS,
    *placement.ENDPOINTS,
    *advice.ENDPOINTS,
    *usage.ENDPOINTS,
    *waits.ENDPOINTS,
    *bill.ENDPOINTS,
    *periods.ENDPOINTS,
    *reconcile.ENDPOINTS,
    *readings.ENDPOINTS,
    *requests.ENDPOINTS,
    *timeline.ENDPOINTS,
    *trace.ENDPOINTS,
    *prompts.ENDPOINTS,
    *secrets.ENDPOINTS,
    *keys.ENDPOINTS,
    *accounts.ENDPOINTS,
    *sessions.ENDPOINTS,
    *grants.ENDPOINTS,
    *releases.ENDPOINTS,
    *alerts.ENDPOINTS,
    *jobs.ENDPOINTS,
    *config.ENDPOINTS,
    *audit.ENDPOINTS,
    *metrics.ENDPOINTS,
)


def application(operations: Operations, extra: Sequence[BaseRoute] = ()) -> Starlette:
    """The control plane: the admin API over these operations, its description, and pages beside it.

    Those on which people log in are always there, `extra` ones where they are given.
    """
    endpoints = (*ENDPOINTS, *openapi.endpoints(ENDPOINTS, __version__))
    return http.application(operations, endpoints, (*login.routes(operations), *extra))
