"""A range of time."""

from dataclasses import dataclass

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Window:
    """The instants t with from ≤ t < to, in unix nanoseconds."""

    from_unix_ns: int
    to_unix_ns: int

    def __post_init__(self) -> None:
        for value in (self.from_unix_ns, self.to_unix_ns):
            if value not in _INT64:
                raise ValueError(
                    f"{value} is not a valid time: unix nanoseconds must fit in 64 bits"
                )
        if self.from_unix_ns > self.to_unix_ns:
            raise ValueError(
                f"a window must not end before it begins: {self.from_unix_ns} > {self.to_unix_ns}"
            )

    @property
    def length_s(self) -> float:
        """The length in seconds."""
        return (self.to_unix_ns - self.from_unix_ns) / 1e9
