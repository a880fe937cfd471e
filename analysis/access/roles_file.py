"""Read `roles.yaml`: the roles, the claims that give a person a role, and what each role may see.

Errors name the file, line and key.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from alerts.errors import shown
from alerts.strict_yaml import Fields, MappingReader, YamlScalar
from alerts.yaml_files import read_file
from telemetry.access import OTHERS, Grant
from telemetry.labels import OTHER

ROLES_KEY: Final = "TAILSPAN_ROLES"
ALL: Final = "*"
MAX_ROLES: Final = 1_000
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
LONGEST_NAME: Final = 64
_ROLE_KEYS: Final = ("claims", "tenants", "models", "costs")


@dataclass(frozen=True, slots=True)
class AccessRole:
    """A role. It determines what persons or tokens may see.

    Attributes:
        claims: the accepted values of each claim. A person has the role if one claim has an
            accepted value. The mapping is empty for a role that only tokens can have.
    """

    name: str
    claims: Mapping[str, frozenset[str]]
    grant: Grant


@dataclass(frozen=True, slots=True)
class Roles:
    """The content of a roles file."""

    roles: tuple[AccessRole, ...]
    path: Path
    audit: Path | None = None
    by_name: Mapping[str, AccessRole] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {each.name: each for each in self.roles})


def load_roles(path: Path) -> Roles:
    """Read a roles file. A relative path of the audit log starts at the folder of the roles file.

    Raises:
        DocumentError: the file is invalid.
        OSError: the file cannot be read.
    """
    whole = read_file(path, ("roles", "audit"))
    audit = path.parent / whole.text("audit") if "audit" in whole else None
    return Roles(_roles(whole), path, audit)


@cache
def roles_in_force() -> Roles | None:
    """The roles of this process, or None if all readers see everything.

    Raises the errors of `load_roles`.
    """
    path = os.environ.get(ROLES_KEY)
    return load_roles(Path(path)) if path else None


def _roles(whole: MappingReader) -> tuple[AccessRole, ...]:
    node = whole.node("roles")
    if not isinstance(node, Fields) or not node.fields:
        raise whole.error("roles", "must be a mapping of names to roles")
    if len(node.fields) > MAX_ROLES:
        raise whole.error("roles", f"{len(node.fields):,} roles; allowed: at most {MAX_ROLES:,}")
    return tuple(_role(whole, name) for name in node.fields)


def _role(whole: MappingReader, name: str) -> AccessRole:
    if not name or len(name) > LONGEST_NAME or not NAME_CHARACTERS.issuperset(name):
        raise whole.error(
            "roles",
            f"{shown(name)}; allowed names: at most {LONGEST_NAME} of a-z 0-9 - _",
        )
    every = whole.node("roles")
    assert isinstance(every, Fields)
    role = MappingReader(every.fields[name], whole.file, f"roles.{name}", _ROLE_KEYS)
    if "costs" not in role:
        raise role.error("costs", "is missing; allowed: true, false")
    return AccessRole(
        name,
        _claims(role) if "claims" in role else {},
        Grant(_names(role, "tenants"), _names(role, "models"), role.flag("costs", default=False)),
    )


def _claims(role: MappingReader) -> Mapping[str, frozenset[str]]:
    node = role.node("claims")
    if not isinstance(node, Fields) or not node.fields:
        raise role.error("claims", "must be a mapping of claims to sequences of values")
    claims = MappingReader(node, role.file, f"{role.path}.claims", tuple(node.fields))
    return {name: frozenset(claims.texts(name, "values of the claim")) for name in node.fields}


def _names(role: MappingReader, key: str) -> frozenset[str] | None:
    """Return the names that a key lists, or None if the key allows all names."""
    node = role.node(key)
    if isinstance(node, YamlScalar):
        if node.text == ALL:
            return None
        raise role.error(key, f"{shown(node.text)}; allowed: '*', or a sequence of names")
    names = frozenset(role.texts(key, f"names of {key}"))
    if reserved := names & {ALL, OTHERS, OTHER}:
        raise role.error(key, f"{shown(min(reserved))} cannot be an item; write {key}: '*' for all")
    return names
