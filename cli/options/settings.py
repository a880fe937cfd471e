"""Settings: options that also have an environment variable and a key in `tailspan.toml`.

The settings file becomes click's `default_map`. An environment variable overrides its values.
"""

import difflib
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from telemetry.addresses import masked

_Command = TypeVar("_Command", bound=Callable[..., Any])

FILE_NAME: Final = "tailspan.toml"
FILE_VARIABLE: Final = "TAILSPAN_CONFIG"
FILE_READ: Final = "tailspan.settings_file"
"""The settings file that was read is stored under this key in the metadata of click's context."""

GROUPS: Final = (
    "Servers to watch",
    "Ports",
    "API",
    "Access",
    "Storage",
    "Objectives and prices",
    "Forwarding",
    "Scraping",
    "GPUs",
)
_SHOWN: Final = 80
_PREFIX: Final = "TAILSPAN_"
_OTHER_VARIABLES: Final = frozenset(
    {
        *("CONFIG", "TOKENS", "SCRAPE_TOKEN", "DCGM_TOKEN", "FORWARD_HEADERS", "PEAKS"),
        *("EXPLORER_URL", "BUDGET", "TRACE_URL", "SIMULATED_PAST", "OTLP_SCHEME"),
        *("TENANT_HEADER", "KUBERNETES", "PREFIX_KEY", "PREFIX_KEY_FILE", "LINK", "START"),
    }
)
"""The names, without the prefix, of variables that are not settings (docs/configuration.md)."""
_SIMILAR: Final = 0.8
"""Minimum similarity (difflib) at which a variable counts as a mistyped setting. One wrong letter
of six has a similarity of 0.83. Kubernetes' variables for a service with the name tailspan have
less than 0.7."""


class Setting(click.Option):
    """An option with a key in the settings file and an environment variable.

    Args:
        group: the heading in `--help`.
        key: the key in the settings file. By default, it is the name of the flag.
        variable: the environment variable. By default, it is TAILSPAN_ and the key.
        value_variable: a variable with the content of the file that the option names. It overrides
            the file.
    """

    def __init__(
        self,
        *args: Any,
        group: str,
        key: str | None = None,
        variable: str | None = None,
        value_variable: str | None = None,
        **attributes: Any,
    ) -> None:
        declarations = args[0] if args else attributes["param_decls"]
        self.flag = next(each for each in declarations if each.startswith("--"))
        self.key = key or self.flag.removeprefix("--")
        self.group = group
        self.value_variable = value_variable
        variable = variable or _variable_of(self.key)
        super().__init__(*args, **{"envvar": variable, "show_envvar": True, **attributes})

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return str(self.envvar)

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Omit the variable from the help if it has the default name, which is TAILSPAN_ and the
        flag's name."""
        extra = super().get_help_extra(ctx)
        if self.variable == _variable_of(self.flag.removeprefix("--")):
            extra.pop("envvars", None)
        return extra

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The source of a wrong value: the variable, or the flag."""
        source = ctx and ctx.get_parameter_source(self.name)
        return f"'{self.variable if source is ParameterSource.ENVIRONMENT else self.flag}'"

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value. If the value from the settings file is invalid, the error contains the
        file and the key."""
        try:
            return super().process_value(ctx, value)
        except click.BadParameter as error:
            if ctx.get_parameter_source(self.name) is not ParameterSource.DEFAULT_MAP:
                raise
            file = ctx.meta[FILE_READ]
            raise click.UsageError(
                f"{file}: {self.key} = {shown(value)}: {error.message}"
            ) from error


def _variable_of(key: str) -> str:
    return f"{_PREFIX}{key.upper().replace('-', '_')}"


def setting(*declarations: str, group: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """Declare a setting, with the arguments of `click.option` and `Setting`."""
    return click.option(*declarations, cls=Setting, group=group, **attributes)


def with_options(command: _Command, *options: Callable[[_Command], _Command]) -> _Command:
    """Add options, which the help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


class SettingsCommand(click.Command):
    """Lists its settings under headings in `--help`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the settings under their headings, and then all other options."""
        records: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                group = param.group if isinstance(param, Setting) else "Other options"
                records.setdefault(group, []).append(record)
        for group in (*GROUPS, "Other options"):
            if group in records:
                with formatter.section(group):
                    formatter.write_dl(records[group])
        formatter.write_paragraph()
        formatter.write_text(_HOW_TO_SET)


_HOW_TO_SET: Final = (
    'All options are settings, except those under "Other options". You can also set them in an'
    f" environment variable (TAILSPAN_GRPC_PORT for --grpc-port) or in a file ({FILE_NAME}:"
    " grpc-port = 4317). A flag overrides the variable, and the variable overrides the file."
)


def file_option(*names: str, **attributes: Any) -> Callable[[_Command], _Command]:
    """Declare `--config`."""
    return click.option(
        "--config",
        *names,
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=FILE_VARIABLE,
        show_envvar=True,
        metavar="FILE",
        show_default=f"./{FILE_NAME} if it exists",
        help="Settings file, in TOML.",
        **attributes,
    )


config_option = file_option(
    "_settings_file",
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _param, value: _read(ctx, value),
)


def announce_file() -> None:
    """Print the path of the settings file that was read."""
    file = click.get_current_context().meta.get(FILE_READ)
    if file is not None:
        click.echo(f"Settings are read from {file}; tailspan settings shows all of them.")


def _read(ctx: click.Context, given: Path | None) -> None:
    if ctx.resilient_parsing:
        return
    if ctx.parent is not None:  # the API runs commands without a parent context
        _warn_of_unknown_variables()
    file = given or Path(FILE_NAME)
    if given is None and not file.exists():
        return
    values = read_file(file)
    ctx.meta[FILE_READ] = file
    defaults = {}
    for param in ctx.command.params:
        key = getattr(param, "key", None)
        content = os.environ.get(getattr(param, "value_variable", None) or "")
        if key in values and not content:
            defaults[param.name] = values[key]
    ctx.default_map = defaults


def _warn_of_unknown_variables() -> None:
    """Warn of variables that resemble a setting's, such as TAILSPAN_GRPC_PROT."""
    given = [name for name in os.environ if name.startswith(_PREFIX)]
    if not given:
        return
    settings = {each.variable.removeprefix(_PREFIX) for each in all_settings()}
    for name in given:
        key = name.removeprefix(_PREFIX)
        if key in settings or key in _OTHER_VARIABLES:
            continue
        near = difflib.get_close_matches(key, settings, n=1, cutoff=_SIMILAR)
        if near:
            click.echo(
                f"Warning: {name} is ignored, because there is no such setting. Did you mean"
                f" {_PREFIX}{near[0]}?",
                err=True,
            )


def read_file(file: Path) -> dict[str, Any]:
    """The values of a settings file. Relative paths in the file start at the folder of the file.

    Raises:
        click.UsageError: the file cannot be read, or has an unknown key or a wrong type.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.UsageError(f"--config {file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--config {file}: malformed TOML: {error}") from error
    known = {each.key: each for each in all_settings()}
    values = {}
    for key, value in document.items():
        if key not in known:
            raise click.UsageError(f"{file}: {_why_unknown(key, value, known)}")
        values[key] = _checked(file, known[key], value)
    return values


def all_settings() -> list[Setting]:
    """All settings of `tailspan up`."""
    from cli.commands.up import up

    return [param for param in up.params if isinstance(param, Setting)]


def without_credentials(text: str) -> str:
    """The text. If it is an address, user, password and query are masked."""
    return masked(text) if "://" in text or "@" in text else text


def shown(value: object) -> str:
    """A value as short text for a message, without credentials in addresses."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(each) for each in value)}]"
    if isinstance(value, str | Path):
        text = f'"{without_credentials(str(value))}"'
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _why_unknown(key: str, value: object, known: dict[str, Setting]) -> str:
    """Return why a key is wrong. The value is left out, because it may be a secret."""
    if isinstance(value, dict):
        return f"[{key}]: tables are not allowed; allowed keys: {', '.join(known)}"
    near = difflib.get_close_matches(key.replace("_", "-"), known, n=3)
    if not near:
        return f"{key}: unknown key; allowed: {', '.join(known)}"
    return (
        f"{key}: unknown key; did you mean {' or '.join(near)}? docs/configuration.md and"
        " tailspan up --help list all keys"
    )


def _checked(file: Path, option: Setting, value: object) -> object:
    kind, right = _toml_type(option)
    if not right(value):
        raise click.UsageError(
            f"{file}: {option.key} = {shown(value)}: wrong type; allowed: {kind}"
        )
    if isinstance(option.type, click.Path):
        if isinstance(value, list):
            return [str(file.parent / each) for each in value]
        return str(file.parent / str(value))
    return value


def _toml_type(option: Setting) -> tuple[str, Callable[[object], bool]]:
    if option.is_flag:
        return "true or false", lambda value: isinstance(value, bool)
    if option.multiple:
        return (
            'a list of strings, as ["a", "b"]',
            lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
        )
    if isinstance(option.type, click.IntRange):
        return "a whole number", lambda value: type(value) is int
    if isinstance(option.type, click.FloatRange):
        return "a number", lambda value: type(value) in (int, float)
    return 'a string in quotes, as "7d"', lambda value: isinstance(value, str)
