"""Alembic without its ini file: the folder, and the connection to work on."""

from alembic.config import Config
from sqlalchemy import Connection

from store import migrations


def config(connection: Connection) -> Config:
    """For Alembic's commands; `env.py` takes the connection, and its transaction, from it."""
    made = Config()
    made.set_main_option("script_location", str(migrations.FOLDER).replace("%", "%%"))
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    made.attributes["connection"] = connection
    return made
