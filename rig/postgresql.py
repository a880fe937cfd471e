"""Run Debian's PostgreSQL in its own folder, for tests that stop and start it."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psycopg

from rig.install import ProgramUnavailableError
from rig.ports import free_port

USER, PASSWORD = "tailspan", "for this test only"
PATIENCE_S = 60
_WITHOUT_PRIVILEGES = 65_534
"""A user without privileges that Linux distributions provide."""


class PostgreSQL:
    """A server on a free port of the loopback, with an empty database `tailspan`.

    The server runs as an unprivileged user, because PostgreSQL refuses to run as root.

    Args:
        base: a folder that `backup` wrote. The server begins with a copy of it, and recovers up to
            the configured time.

    Raises:
        ProgramUnavailableError: PostgreSQL is not installed.
    """

    def __init__(self, *, base: Path | None = None) -> None:
        self._programs = _programs()
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="tailspan-postgresql-", dir="/tmp"))
        self.port = free_port()
        self._copies: dict[str, int] = {}
        """The number of copies of each template database."""
        if self._user:
            shutil.chown(self._folder, self._user)
        if base is not None:
            self._copy(base)
            return
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        self._run(
            *("initdb", "--no-sync", "--auth=scram-sha-256", f"--username={USER}"),
            *(f"--pwfile={secret}", "--locale=C.UTF-8", f"--pgdata={self._data}"),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def url(self, *, password: str = PASSWORD, database: str = "postgres", schema: str = "") -> str:
        """The database URL for Tailspan."""
        options = f"?options=-csearch_path%3D{schema}" if schema else ""
        secret = password.replace(" ", "%20")
        return f"postgresql+psycopg://{USER}:{secret}@127.0.0.1:{self.port}/{database}{options}"

    def new_url(self, schema: str = "") -> str:
        """Create a schema, by default with a random name, and return its database URL."""
        made = schema or f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.dsn) as connection:
            connection.execute(f"CREATE SCHEMA {made}")
        return self.url(schema=made)

    def copy(self, template: str, create: Callable[[str], None]) -> str:
        """Return the URL of a schema in a new copy of a database. Delete the previous copy.

        A copy takes a third of the CPU time of creating the tables.

        Args:
            template: the name of the database to copy. The first call creates it.
            create: creates the tables in the schema with a URL.
        """
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            if template not in self._copies:
                connection.execute(f"CREATE DATABASE {template}")
                address = self.url(database=template).replace("+psycopg", "")
                with psycopg.connect(address) as inside:
                    inside.execute(f"CREATE SCHEMA {template}")
                create(self.url(database=template, schema=template))
                self._copies[template] = 0
            number = self._copies[template]
            connection.execute(f"DROP DATABASE IF EXISTS {template}_{number} WITH (FORCE)")
            self._copies[template] = number + 1
            connection.execute(f"CREATE DATABASE {template}_{number + 1} TEMPLATE {template}")
        return self.url(database=f"{template}_{number + 1}", schema=template)

    @property
    def dsn(self) -> str:
        """The database's address in the driver's format."""
        return self.url().replace("+psycopg", "")

    @property
    def pid(self) -> int:
        """The process id of the server, which has a child process per connection."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        # PostgreSQL's default of 100 connections can be too low, because unused pools keep
        # connections open.
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder} -N 400"
        log = self._folder / "log"
        self._run("pg_ctl", "start", "-w", f"-D{self._data}", f"-l{log}", f"-o{options}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server. "immediate" simulates a crash. "fast" first ends all connections."""
        self._run("pg_ctl", "stop", "-w", f"-D{self._data}", f"-m{mode}")

    def configure(self, *lines: str) -> None:
        """Append lines to postgresql.conf. Call it before `start`."""
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def backup(self, name: str) -> Path:
        """Write a base backup with pg_basebackup, and return its folder."""
        target = self._folder / name
        where = f"--dbname={self.dsn}", f"--pgdata={target}"
        # By default, pg_basebackup waits minutes for a checkpoint.
        self._run("pg_basebackup", *where, "--checkpoint=fast")
        return target

    def client(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs, such as pg_dump, in the server's folder."""
        self._run(program, *arguments)

    @property
    def folder(self) -> Path:
        """The server's folder. The user that runs the server may write to it."""
        return self._folder

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _copy(self, base: Path) -> None:
        shutil.copytree(base, self._data)
        (self._data / "recovery.signal").touch()
        if self._user:
            for path in (self._data, *self._data.rglob("*")):
                shutil.chown(path, self._user)
        self._data.chmod(0o700)

    @property
    def _as_user(self) -> tuple[str, ...]:
        """The command prefix that changes the user.

        The option `user` of subprocess would fork the process. A fork fails while gRPC's threads
        run.
        """
        return ("setpriv", "--reuid", self._user, "--clear-groups") if self._user else ()

    def _run(self, program: str, *arguments: str) -> None:
        output = self._folder / "out"
        # Write the output to a file, because the started server would keep a pipe open.
        with output.open("ab") as out:
            done = subprocess.run(
                [*self._as_user, self._programs / program, *arguments],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_S,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(
                f"{program} ended with {done.returncode}: {output.read_text()[-2000:]}"
            )


def _programs() -> Path:
    """The folder of PostgreSQL's programs. On Debian, not every user's PATH contains it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda at: at.parts[-3])
    if not found:
        raise ProgramUnavailableError(
            "there is no PostgreSQL; install it with: apt-get install postgresql"
        )
    return found[-1].parent


def _unprivileged() -> str | None:
    """The user that runs the server, or None for the current user."""
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else pwd.getpwuid(_WITHOUT_PRIVILEGES).pw_name
