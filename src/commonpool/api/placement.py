"""Where work would go, and what could be gained by moving it together. Nothing is taken, nothing is moved."""

from commonpool.access.permissions import Permission
from commonpool.api.http import Endpoint, Nothing
from commonpool.api.operations import BadRequestError, Operations
from commonpool.api.subjects import PLATFORM, Who
from commonpool.api.wire import nodes as wire
from commonpool.config.problems import listed
from commonpool.core.trial import Trial


async def place(operations: Operations, _: Nothing, question: wire.PlaceQuestion, __: Who) -> Trial:
    policy = operations.config().policy
    if bool(question.tenant) == bool(question.model):
        raise BadRequestError("name a tenant for a job of its, or a model for a replica of it, and not both")
    if question.model:
        if question.model not in policy.deployments:
            there = listed(policy.deployments)
            raise BadRequestError(f"there is no model {question.model!r}; there is {there}", param="model")
        if question.hardware is not None or question.expected_ns is not None:
            raise BadRequestError(
                f"what a replica of {question.model} takes is in the configuration; leave hardware and expected_ns out",
                param="hardware",
            )
    else:
        if question.tenant not in policy.tenants:
            there = listed(policy.tenants)
            raise BadRequestError(f"there is no tenant {question.tenant!r}; there is {there}", param="tenant")
        if question.hardware is None:
            raise BadRequestError("it is not said what the job asks for; give its hardware", param="hardware")
    return operations.place(question)


async def hints(operations: Operations, _: Nothing, __: Who) -> wire.Hints:
    return wire.Hints(tuple(operations.hints()))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/admin/v1/place",
        place,
        Permission.READ_NODES,
        PLATFORM,
        "Where a job or a replica would be placed now, and each node's score; nothing is taken",
        Trial,
        body=wire.PlaceQuestion,
    ),
    Endpoint(
        "GET",
        "/admin/v1/hints",
        hints,
        Permission.READ_NODES,
        PLATFORM,
        "What could be gained by moving work together; nothing is moved",
        wire.Hints,
    ),
)
