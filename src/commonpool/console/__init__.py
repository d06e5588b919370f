"""The console: pages over the public admin API, for whoever may use that API.

It asks the API as its own caller, within the process, so it can show nothing that the API would not. One module for
each page; `frame` is what they have in common, docs/console.md how one is added.
"""

import time
from collections.abc import Callable
from typing import Final

from starlette.routing import BaseRoute

from commonpool.console import (
    accounts,
    advice,
    alerts,
    audit,
    bills,
    configuration,
    decisions,
    devices,
    jobs,
    keys,
    loans,
    look,
    models,
    overview,
    platform,
    playground,
    prompts,
    requests,
    settings,
    tenants,
)
from commonpool.console.frame import WITHIN_S, House, Page

# In the order of the menu.
PAGES: Final[tuple[Page, ...]] = (
    *overview.PAGES,
    *platform.PAGES,
    *tenants.PAGES,
    *alerts.PAGES,
    *decisions.PAGES,
    *models.PAGES,
    *devices.PAGES,
    *jobs.PAGES,
    *loans.PAGES,
    *requests.PAGES,
    *bills.PAGES,
    *advice.PAGES,
    *keys.PAGES,
    *accounts.PAGES,
    *audit.PAGES,
    *settings.PAGES,
    *configuration.PAGES,
    *prompts.PAGES,
    *look.PAGES,
)


def routes(clock: Callable[[], int] = time.time_ns, within_s: float = WITHIN_S) -> list[BaseRoute]:
    """The pages, to be mounted beside the API. `clock` gives nanoseconds since the epoch.

    A page waits `within_s` for a part that is slow.
    """
    return House((*PAGES, *playground.pages()), clock, within_s).routes()
