"""The keys of who may come to the control plane. Reasons for the defaults are in docs/configuration.md."""

from typing import get_args

import msgspec

from commonpool.config import kinds
from commonpool.config.kinds import Leaf, choice, matching
from commonpool.config.roles import PLATFORM_ROLES, TENANT_ROLES
from commonpool.config.shape import Field, Record, Series
from commonpool.config.structs import Oidc, RoleBy

ROLES_MAX = 2000
ROLES = tuple(dict.fromkeys((*PLATFORM_ROLES, *TENANT_ROLES)))
CLAIM = matching(r"^[!-~]{1,128}$", "the name of a claim", "groups")
CLIENT = matching(r"^[!-~]{1,255}$", "an id of the issuer's", "commonpool")
GROUP = matching(r"^[!-~¡-\uffff]([ -~¡-\uffff]{0,253}[!-~¡-\uffff])?$", "a group", "/gpu/operators")
_EMAIL = matching(r"^[!-?A-~]{1,64}@[A-Za-z0-9.-]{1,190}$", "an e-mail address", "ann@house.example")
EMAIL = Leaf(_EMAIL.what, lambda text: _EMAIL.parse(text).lower(), _EMAIL.schema)  # nobody tells A from a in one
_OIDC = {field.name: field.default for field in msgspec.structs.fields(Oidc)}

WHO = get_args(RoleBy)  # by what a role's holder is known, one of them for each

ACCESS = Record(
    (
        Field(
            "local",
            kinds.FLAG,
            "Whether a program on this machine that shows no credential is a platform-admin.",
            default="true",
        ),
        Field("url", kinds.ORIGIN, "Where browsers reach the control plane.", derived="its own address"),
        Field("policies", kinds.PATH, "Folder of Cedar policies beside the product's own, relative to this file."),
        Field(
            "oidc",
            Record(
                (
                    Field("issuer", kinds.ISSUER, "Whose people may log in: an OpenID Connect issuer."),
                    Field("client_id", CLIENT, "What this product is called at the issuer."),
                    Field("client_secret", kinds.CREDENTIAL, "Where its secret is: env:NAME or file:PATH."),
                    Field(
                        "audience",
                        CLIENT,
                        "Audience of the bearer tokens that machines may bring.",
                        derived="none: bearer tokens are refused",
                    ),
                    Field("groups", CLAIM, "The claim that lists somebody's groups.", default=str(_OIDC["groups"])),
                )
            ),
            "Login by an OpenID Connect issuer.",
        ),
        Field(
            "roles",
            Series(
                Record(
                    (
                        Field("role", choice(*ROLES), "What they are.", required=True),
                        Field("tenant", kinds.NAME, "In which tenant.", derived="on the platform"),
                        Field("account", kinds.NAME, "A local account."),
                        Field("group", GROUP, "Whoever the issuer says is in this group."),
                        Field("email", EMAIL, "Whose verified e-mail address at the issuer is this."),
                        Field("subject", GROUP, "Whose subject (claim sub) at the issuer is this."),
                    )
                ),
                ROLES_MAX,
                distinct=False,  # the checks tell
            ),
            "Who is what, and where.",
        ),
    )
)
