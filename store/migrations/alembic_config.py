"""Configure Alembic without an ini file."""

from alembic.config import Config
from sqlalchemy import Connection

from store import migrations


def config(connection: Connection) -> Config:
    """Return the configuration for Alembic's commands. `env.py` uses the connection."""
    made = Config()
    made.set_main_option("script_location", str(migrations.FOLDER).replace("%", "%%"))
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    made.attributes["connection"] = connection
    return made
