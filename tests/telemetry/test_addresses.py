import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.addresses import exposes, exposure, is_loopback, masked


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", None, "localhost.example.org", "10.0.0.1", "0.0.0.0", "::"])
def test_other_addresses_are_not_loopback(host: str | None) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "exposed"),
    [
        ("http://collector:4318", True),
        ("HTTP://10.0.0.1", True),
        ("http://127.0.0.1.example.org/x", True),
        ("http://127.0.0.1@example.org/x", True),
        ("http://127.0.0.1:4318", False),
        ("http://[::1]:4318", False),
        ("https://collector", False),
    ],
)
def test_only_an_unencrypted_address_off_loopback_is_exposed(url: str, exposed: bool) -> None:
    assert exposes(url) is exposed


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://tempo:4318/base", "http://tempo:4318/base"),
        ("http://me:s3cret@tempo:4318", "http://***@tempo:4318"),
        ("http://me:s3/cr?et@tempo", "http://***"),
        ("http://tempo/?token=s3cret", "http://tempo/?***"),
        ("http://tempo#s3cret", "http://tempo?***"),
        ("me:s3cret@tempo:4318", "***@tempo:4318"),
        ("tempo:4318", "tempo:4318"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown
    assert "s3cret" not in exposure(url, "the token")


@given(st.text(), st.text(min_size=1), st.sampled_from(["", "/x", "?a=b", "?a=b@c", "#d"]))
def test_no_password_is_ever_shown(user: str, password: str, rest: str) -> None:
    secret = f"<{password}>"
    assert secret not in masked(f"http://{user}:{secret}@host{rest}")
    assert secret not in masked(f"http://host/?token={secret}")
