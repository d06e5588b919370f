"""The roles that a caller of the control plane can have. What each may do is said by policies, elsewhere."""

PLATFORM_ADMIN = "platform-admin"

PLATFORM_ROLES = (PLATFORM_ADMIN, "operator", "finance", "viewer", "auditor")
"""Roles that count for the platform, and so for every tenant."""

TENANT_ROLES = ("tenant-admin", "developer", "viewer")
"""Roles that count within one tenant."""
