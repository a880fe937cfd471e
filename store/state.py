"""Find the database that holds the state.

The state is what Tailspan has decided and sent (`schema.STATE_METADATA`). Telemetry is what servers
have sent (`schema.METADATA`). The state can be in a separate database, because leases need
transactions, which ClickHouse lacks. All functions of the store take the telemetry's database.
"""

from typing import Final

from sqlalchemy import Engine, event

_ATTACHED: Final = "tailspan_state"
_SEPARATE: Final = "tailspan_is_state"


def state_of(engine: Engine) -> Engine:
    """The database of the state: a separate database, or `engine` itself."""
    state: Engine = engine.get_execution_options().get(_ATTACHED, engine)
    return state


def separate_state(engine: Engine) -> Engine | None:
    """The separate database of the state, or None."""
    state = state_of(engine)
    return None if state is engine else state


def is_separate_state(engine: Engine) -> bool:
    """Whether this engine is connected to a separate database that stores only the state."""
    return bool(engine.get_execution_options().get(_SEPARATE))


def attach(engine: Engine, state: Engine) -> None:
    """Use a separate database for the state. It is closed together with `engine`."""
    state.update_execution_options(**{_SEPARATE: True})
    use_state(engine, state)
    event.listen(engine, "engine_disposed", lambda _engine: state.dispose())


def use_state(engine: Engine, state: Engine) -> None:
    """Set the database that `state_of` returns for an engine."""
    engine.update_execution_options(**{_ATTACHED: state})
