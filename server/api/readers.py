"""Identify the reader who asks a question, by the token of the request. The reader determines what
the answer may contain."""

from collections.abc import Mapping
from typing import Any

from starlette.types import Scope

from analysis.access.roles_file import AccessRole, Roles
from collector.listen.bearer_tokens import HOLDER, Holder
from telemetry.access import Access


class NotAReader(Exception):  # noqa: N818
    """Roles are configured, and the request has no token."""


class Readers:
    """Maps the sender of a request to a reader."""

    def __init__(self, roles: Roles | None = None) -> None:
        self._has_roles = roles is not None
        self._grants = {} if roles is None else {r.name: _as_json(r) for r in roles.roles}

    def of(self, scope: Scope | None) -> Mapping[str, Any]:
        """The identity of the reader, and what the reader may see.

        `who` is the reader's name, and `grants` are from `telemetry.access`. Without grants, the
        reader may see everything. `scope` is None for a request over standard input.

        Raises:
            NotAReader: roles are configured, and the request has no token.
        """
        holder: Holder | None = None if scope is None else scope.get(HOLDER)
        if holder is None:
            if scope is not None and self._has_roles:
                raise NotAReader(
                    "with --roles, questions need a token: start Tailspan with --token-file, and"
                    " send Authorization: Bearer TOKEN"
                )
            return {"who": "no token", "grants": None}
        if holder.role is None:
            return {"who": f"token {holder.number}", "grants": None}
        who = f"token {holder.number}, role {holder.role}"
        return {"who": who, "grants": self._grants[holder.role]}


def _as_json(role: AccessRole) -> list[dict[str, Any]]:
    return Access.of([role.grant]).as_json()
