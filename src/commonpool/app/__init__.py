"""The product: the only place that wires the parts together, and what the admin API operates on."""

from commonpool.app.clock import Clock
from commonpool.app.house import DataPlane, House, LocalHouse, Watch, jobs_folder
from commonpool.app.product import COLLECT_EVERY, Product, Started
from commonpool.app.serve import run
from commonpool.app.traces import exporter, traces
from commonpool.control.replicas import StartError

__all__ = [
    "COLLECT_EVERY",
    "Clock",
    "DataPlane",
    "House",
    "LocalHouse",
    "Product",
    "StartError",
    "Started",
    "Watch",
    "exporter",
    "jobs_folder",
    "run",
    "traces",
]
