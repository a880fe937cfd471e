"""Configure Alembic without an ini file."""

from alembic.config import Config
from sqlalchemy import Connection

from store import migrations


def config(connection: Connection, schema: migrations.Schema = migrations.TELEMETRY) -> Config:
    """The configuration for Alembic's commands. `env.py` uses the connection."""
    made = Config()
    folder = str(migrations.FOLDER).replace("%", "%%")
    made.set_main_option("script_location", folder)
    made.set_main_option("path_separator", "newline")
    made.set_main_option("version_locations", f"{folder}/{schema.folder}")
    made.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    made.attributes["connection"] = connection
    made.attributes["schema"] = schema
    return made
