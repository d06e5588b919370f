"""The past that `advise` and `compare` replay: this product's own records of a time, or a trace.

Imported where it is used: the simulator takes longer to import than most commands run.
"""

import time
from pathlib import Path

from commonpool.api.wire.config import Configuration
from commonpool.api.wire.requests import Records
from commonpool.app.past import Past, TooLittleError, by_pool, enough, of_records
from commonpool.cli.client import connect
from commonpool.cli.exits import CommandError, ExitCode
from commonpool.config import Config, ConfigError, Sources, parse_sources, read_sources
from commonpool.core.model import UsageRecord
from commonpool.simulator.backtest import held
from commonpool.simulator.contract import SimulationError
from commonpool.simulator.presets import PRESETS
from commonpool.simulator.scenario import cluster, served, service, target
from commonpool.simulator.traces import TraceError, read


def own(control: str, token_file: Path | None, window_ns: int) -> Past:
    """The records of the product that runs, of the last so many nanoseconds. Raises CommandError."""
    client = connect(control, token_file)
    sources = client.get("/admin/v1/config", Configuration).sources
    now = time.time_ns()
    records: list[UsageRecord] = []
    after: str | None = ""
    while after is not None:
        query: dict[str, str | int] = {"since_ns": max(0, now - window_ns), "until_ns": now, "after": after}
        page = client.get("/admin/v1/records", Records, query)
        records += page.records
        after = page.after
    try:
        return of_records(records, sources)
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
    except TooLittleError as error:
        raise CommandError(f"{error}, or name a trace with --trace") from None


def of_trace(trace: Path, file: Path, preset: str, model: str | None) -> Past:
    """What a trace tells of the tenants of a configuration. Raises CommandError."""
    try:
        sources = read_sources(file)
        config = parse_sources(sources)
        name = model or next(iter(config.policy.deployments))
        policy = served(config, name, PRESETS[preset])
        read_work = read(trace, target(policy, name))
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
    except (TraceError, SimulationError) as error:
        raise CommandError(str(error)) from None
    strangers = [tenant for tenant in read_work.tenants if tenant not in policy.tenants]
    if strangers:
        raise CommandError(
            f"{trace.name} has tenants that {file.name} lacks, the first of them {strangers[0]}; add them to it"
        )
    work = held(read_work, service(policy, cluster(policy, PRESETS[preset])))
    try:
        enough(work.arrivals, trace.name)
    except TooLittleError as error:
        raise CommandError(f"{error}, or name a longer trace") from None
    return Past(
        name=trace.name,
        sources=sources,
        config=config,
        since_ns=work.arrivals[0].at_ns,
        until_ns=work.arrivals[-1].at_ns + 1,
        works=by_pool(work, policy),
    )


def parsed(sources: Sources) -> Config:
    """The configuration in these texts. Raises CommandError."""
    try:
        return parse_sources(sources)
    except ConfigError as error:
        raise CommandError(str(error), ExitCode.INVALID_CONFIG) from None
