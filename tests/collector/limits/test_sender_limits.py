import pytest

from collector.errors import ThrottledError
from collector.limits.sender_limits import (
    MAX_PEERS,
    MESSAGE_BYTES,
    CollectorLimits,
    RateLimiter,
    sender,
)


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _rates(clock: _Clock, peer: float = 10_000, total: float = 25_000) -> RateLimiter:
    return RateLimiter(CollectorLimits(max_peer_bytes_per_s=peer, max_bytes_per_s=total), clock)


def test_a_sender_above_its_rate_gets_a_retry_time() -> None:
    """A sender may send the quota of one second at once, and then one message on credit."""
    clock = _Clock()
    rates = _rates(clock)
    rates.charge("a", 9_000)
    rates.charge("a", 30_000)
    with pytest.raises(ThrottledError, match="10000 bytes/s from this address") as refused:
        rates.charge("a", 1)
    assert refused.value.retry_after_s == 4
    clock.now += 4
    rates.charge("a", 1)


def test_each_sender_has_its_own_rate() -> None:
    rates = _rates(_Clock())
    rates.charge("a", 10_000)
    with pytest.raises(ThrottledError, match="this address"):
        rates.charge("a", 0)
    rates.charge("b", 10_000)
    rates.charge("c", 10_000)
    with pytest.raises(ThrottledError, match="from all senders"):
        rates.charge("d", 0)


def test_empty_messages_are_counted_too() -> None:
    rates = _rates(_Clock(), peer=10 * MESSAGE_BYTES)
    for _ in range(11):
        rates.charge("a", 0)
    with pytest.raises(ThrottledError):
        rates.charge("a", 0)


def test_memory_for_senders_is_bounded() -> None:
    rates = _rates(_Clock(), total=1e12)
    for number in range(2 * MAX_PEERS):
        rates.charge(str(number), 0)
    assert len(rates._peers) == MAX_PEERS


@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_must_be_above_zero(value: float) -> None:
    with pytest.raises(ValueError, match="max_bytes_per_s must be above 0, not"):
        CollectorLimits(max_bytes_per_s=value)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_all_addresses_of_a_host_are_one_sender(address: str, name: str) -> None:
    """One host with IPv6 can have 2**64 addresses."""
    assert sender(address) == name


def test_decompressed_bytes_are_counted_afterwards() -> None:
    rates = _rates(_Clock())
    rates.charge("a", 100)
    rates.add("a", 20_000)
    with pytest.raises(ThrottledError, match="from this address"):
        rates.check("a")
    rates.check("b")
