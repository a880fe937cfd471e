"""Find the roles of a person in the claims of the identity provider. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from analysis.access.roles_file import AccessRole, Roles
from telemetry.access import Access

MAX_VALUES: Final = 1_000
"""Maximum number of values of a claim. Microsoft Entra ID sends at most 200 groups. If a person has
more groups, it sends a link to the list of groups."""
LONGEST_VALUE: Final = 1_024


class ClaimError(ValueError):
    """The value of a claim is neither a text nor a list of texts, or is too long."""


def access_of_person(claims: Mapping[str, Any], roles: Roles, *, unverified: bool) -> Access | None:
    """Return what a person may see, or None if the claims give the person no role.

    If `unverified` is True, an `email` that the provider has not verified counts too.

    Raises:
        ClaimError: a claim that a role uses has an invalid value.
    """
    grants = [
        each.grant for each in roles.roles if _grants_role(claims, each, unverified=unverified)
    ]
    return Access.of(grants) if grants else None


def _grants_role(claims: Mapping[str, Any], role: AccessRole, *, unverified: bool) -> bool:
    return any(
        not wanted.isdisjoint(_values(claims, name, unverified=unverified))
        for name, wanted in role.claims.items()
    )


def _values(claims: Mapping[str, Any], name: str, *, unverified: bool) -> frozenset[str]:
    if name == "email" and claims.get("email_verified") is not True and not unverified:
        return frozenset()
    given = claims.get(name)
    if given is None:
        return frozenset()
    values = [given] if isinstance(given, str) else given
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ClaimError(f"the claim {name} is neither a text nor a list of texts")
    if len(values) > MAX_VALUES or any(len(each) > LONGEST_VALUE for each in values):
        raise ClaimError(
            f"the claim {name} is too long; allowed: at most {MAX_VALUES:,} texts of at most"
            f" {LONGEST_VALUE:,} characters"
        )
    return frozenset(values)
