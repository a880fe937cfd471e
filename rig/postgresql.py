"""A PostgreSQL of Debian's, in a folder of its own, to be stopped and started by the tests."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from rig.install import NotHereError
from rig.ports import free_port

USER, PASSWORD = "tailspan", "only for this test"
PATIENCE_S = 60


class PostgreSQL:
    """A server on a free port of the loopback, with an empty database `tailspan`.

    It runs as an unprivileged user, because as root it refuses to.

    Raises:
        NotHereError: there is none on this machine.
    """

    def __init__(self) -> None:
        self._programs = _programs()
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="tailspan-postgresql-", dir="/tmp"))
        self.port = free_port()
        if self._user:
            shutil.chown(self._folder, self._user)
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
        """The URL that Tailspan is given."""
        options = f"?options=-csearch_path%3D{schema}" if schema else ""
        secret = password.replace(" ", "%20")
        return f"postgresql+psycopg://{USER}:{secret}@127.0.0.1:{self.port}/{database}{options}"

    @property
    def dsn(self) -> str:
        """The same for the driver."""
        return self.url().replace("+psycopg", "")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder}"
        log = self._folder / "log"
        self._run("pg_ctl", "start", "-w", f"-D{self._data}", f"-l{log}", f"-o{options}")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; "immediate" is a crash, "fast" ends its connections first."""
        self._run("pg_ctl", "stop", "-w", f"-D{self._data}", f"-m{mode}")

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _as_user(self) -> tuple[str, ...]:
        """What changes the user: subprocess's own `user` forks, and gRPC's threads end a fork."""
        return ("setpriv", "--reuid", self._user, "--clear-groups") if self._user else ()

    def _run(self, program: str, *arguments: str) -> None:
        output = self._folder / "out"
        with output.open("ab") as out:  # no pipe: the server would hold it open
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
    """Where Debian puts what is not for every user's path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda at: at.parts[-3])
    if not found:
        raise NotHereError("there is no PostgreSQL: apt-get install postgresql")
    return found[-1].parent


def _unprivileged() -> str | None:
    """Whom to run as; None for ourselves."""
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)
