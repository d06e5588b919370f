"""Troubles to test alerts with."""

from commonpool.core.alerts import Trouble

SCALED = Trouble("guarantees_scaled", "More is guaranteed than is there.", pool="main")  # at once, over at once
DOWN = Trouble(
    "model_down", "No replica is ready.", pool="main", about=(("model", "m"),)
)  # after 2 min, kept for 1 min
SOFT = Trouble("budget_soft", "Tenant a has spent 80%.", tenant="a", pool="main")
HARD = Trouble("budget_hard", "Tenant b has spent all.", tenant="b", pool="other")
AWAY = Trouble("journal_away", "The disk is full.")
IDLE = Trouble("underuse", "Tenant a wants little.", tenant="a", pool="main")
ALL = (SCALED, DOWN, SOFT, HARD, AWAY, IDLE)
