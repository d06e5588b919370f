"""Secrets at rest: another master key wraps the data keys."""

from commonpool.access.permissions import Permission
from commonpool.access.secrets import SecretsError
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import ConflictError, Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import prompts as wire


async def rotate(operations: Operations, _: Nothing, __: Who) -> wire.Rotated:
    try:
        return wire.Rotated(await operations.rotate_secrets())
    except SecretsError as error:
        raise ConflictError(str(error)) from None


ENDPOINTS = (
    Endpoint(
        "POST",
        "/admin/v1/secrets/rotate",
        rotate,
        Permission.ROTATE_SECRETS,
        PLATFORM,
        "The master key in force wraps every data key; can be done again at any time",
        wire.Rotated,
    ),
)
