"""Everything that can be allowed or refused on the control plane. Who has which permission is said by the policies."""

import enum
from typing import Final


class Permission(enum.StrEnum):
    """What an endpoint asks for; an action of the policies. `access/policies/schema.cedarschema` has the same ones."""

    READ_HEALTH = "read_health"
    READ_DESCRIPTION = "read_description"
    LOG_IN = "log_in"
    READ_SELF = "read_self"

    READ_TENANTS = "read_tenants"
    READ_STATUS = "read_status"
    READ_USAGE = "read_usage"
    READ_METRICS = "read_metrics"
    READ_NODES = "read_nodes"
    READ_ADVICE = "read_advice"
    READ_REQUESTS = "read_requests"
    READ_PROMPTS = "read_prompts"
    KEEP_PROMPTS = "keep_prompts"

    READ_BILLS = "read_bills"
    CLOSE_PERIOD = "close_period"
    ADD_READING = "add_reading"

    GRANT = "grant"
    RELEASE = "release"
    UNDO_RELEASE = "undo_release"

    MANAGE_ALERTS = "manage_alerts"

    READ_JOBS = "read_jobs"
    READ_JOB_LOGS = "read_job_logs"
    RUN_JOBS = "run_jobs"

    READ_CONFIG = "read_config"
    APPLY_CONFIG = "apply_config"

    READ_KEYS = "read_keys"
    MANAGE_KEYS = "manage_keys"
    REVOKE_KEYS = "revoke_keys"
    MANAGE_ACCOUNTS = "manage_accounts"
    MANAGE_ACCESS = "manage_access"
    ROTATE_SECRETS = "rotate_secrets"
    READ_AUDIT = "read_audit"

    @property
    def changes(self) -> bool:
        """Whether it lets somebody change something, rather than look at it."""
        return self in CHANGES


CHANGES: Final = frozenset(
    {
        Permission.KEEP_PROMPTS,
        Permission.CLOSE_PERIOD,
        Permission.ADD_READING,
        Permission.GRANT,
        Permission.RELEASE,
        Permission.UNDO_RELEASE,
        Permission.MANAGE_ALERTS,
        Permission.RUN_JOBS,
        Permission.APPLY_CONFIG,
        Permission.MANAGE_KEYS,
        Permission.REVOKE_KEYS,
        Permission.MANAGE_ACCOUNTS,
        Permission.MANAGE_ACCESS,
        Permission.ROTATE_SECRETS,
    }
)

OPEN: Final = frozenset({Permission.READ_HEALTH, Permission.READ_DESCRIPTION, Permission.LOG_IN})
"""What asks for no caller, unless an operator's own policies forbid it; everything else does, whatever they permit."""

WORDS: Final[dict[Permission, str]] = {
    Permission.READ_HEALTH: "see whether the product lives and can serve",
    Permission.READ_DESCRIPTION: "read the description of the API",
    Permission.LOG_IN: "log in",
    Permission.READ_SELF: "see who one is and what one may do, change one's own password, end one's own sessions",
    Permission.READ_TENANTS: "see which tenants there are, with their groups, apps and cost centres",
    Permission.READ_STATUS: "see how tenants, models and loans stand, and which guarantees lie idle or are released",
    Permission.READ_USAGE: "read who used what, and the records of past requests",
    Permission.READ_METRICS: "read the metrics",
    Permission.READ_NODES: "see nodes, devices, who has them, and where work would go",
    Permission.READ_ADVICE: "read which quotas the past speaks for, with the configuration",
    Permission.READ_REQUESTS: "ask what became of one request and what it cost",
    Permission.READ_PROMPTS: "read what was asked and answered",
    Permission.KEEP_PROMPTS: "have what is asked and answered kept, or deleted",
    Permission.READ_BILLS: "read bills",
    Permission.CLOSE_PERIOD: "close a month",
    Permission.ADD_READING: "report what was metered elsewhere",
    Permission.GRANT: "let a tenant use more for a while",
    Permission.RELEASE: "release a guarantee",
    Permission.UNDO_RELEASE: "undo releases",
    Permission.MANAGE_ALERTS: "silence alerts and test their channels",
    Permission.READ_JOBS: "see jobs",
    Permission.READ_JOB_LOGS: "read what a job printed",
    Permission.RUN_JOBS: "submit and cancel jobs",
    Permission.READ_CONFIG: "read the configuration and the policies",
    Permission.APPLY_CONFIG: "apply a configuration",
    Permission.READ_KEYS: "list keys, without their secrets",
    Permission.MANAGE_KEYS: "make and rotate keys",
    Permission.REVOKE_KEYS: "revoke keys",
    Permission.MANAGE_ACCOUNTS: "manage accounts and end sessions",
    Permission.MANAGE_ACCESS: "change who may come and what they may do",
    Permission.ROTATE_SECRETS: "have another master key wrap what is secret in the store",
    Permission.READ_AUDIT: "read and verify the audit log",
}
"""Each permission as it stands in a sentence behind "may"."""
