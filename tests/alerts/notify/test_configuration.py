from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.errors import AlertsError, DocumentError
from alerts.notify.channels import ReceiverType
from alerts.notify.configuration import Configuration, load_configuration

WHOLE = """\
explorer_url: https://tailspan.example.org/base
channels:
  - name: on-call
    type: pagerduty
    severities: [page]
    routing_key_env: PAGERDUTY_KEY
  - name: team
    type: slack
    url_file: slack-url
  - {name: manager, type: alertmanager, url: "http://127.0.0.1:9093", authorization_env: AUTH}
  - {name: hook, type: webhook, url: "https://example.org/hook?x=1", signing_key: s3cret}
"""
ENVIRON = {"PAGERDUTY_KEY": "R0UT1NG", "AUTH": "Bearer abc", "EMPTY": " ", "ODD": "a\nb"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slack-url").write_text("https://hooks.example.org/services/T0/B0/x\n")
    return tmp_path


def load(folder: Path, text: str) -> Configuration:
    (folder / "notify.yaml").write_text(text)
    return load_configuration(folder / "notify.yaml", ENVIRON)


def test_a_whole_file(folder: Path) -> None:
    found = load(folder, WHOLE)
    assert found.explorer_url == "https://tailspan.example.org/base"
    pager, slack, manager, hook = found.channels
    assert (pager.kind, pager.severities) == (ReceiverType.PAGERDUTY, ("page",))
    assert pager.key is not None
    assert pager.key.reveal() == "R0UT1NG"
    assert pager.url.reveal() == "https://events.pagerduty.com/v2/enqueue"
    assert slack.url.reveal() == "https://hooks.example.org/services/T0/B0/x"
    assert slack.severities == ("page", "ticket")
    assert manager.authorization is not None
    assert manager.authorization.reveal() == "Bearer abc"
    assert hook.key is not None
    assert hook.key.reveal() == "s3cret"


def test_the_variable_has_the_explorers_address_if_the_file_has_none(folder: Path) -> None:
    without = "\n".join(WHOLE.splitlines()[1:])
    assert load(folder, without).explorer_url is None
    environ = {**ENVIRON, "TAILSPAN_EXPLORER_URL": "https://ops.example.org/tailspan"}
    file = folder / "notify.yaml"
    assert load_configuration(file, environ).explorer_url == "https://ops.example.org/tailspan"
    file.write_text(WHOLE)
    assert load_configuration(file, environ).explorer_url == "https://tailspan.example.org/base"
    file.write_text(without)
    with pytest.raises(AlertsError, match="TAILSPAN_EXPLORER_URL: is not an address"):
        load_configuration(file, {**ENVIRON, "TAILSPAN_EXPLORER_URL": "ops.example.org"})


@pytest.mark.parametrize(
    ("channel", "refused"),
    [
        ("{name: a, type: slack, url: 'http://hooks.example.org/x'}", True),
        ("{name: a, type: webhook, url: 'http://hook.example.org/x', authorization: s3cret}", True),
        ("{name: a, type: webhook, url: 'http://hook.example.org/x?token=s3cret'}", True),
        ("{name: a, type: webhook, url_env: HOOK}", True),
        ("{name: a, type: pagerduty, url: 'http://p.example.org', routing_key: s3cret}", True),
        ("{name: a, type: webhook, url: 'http://hook.example.org/x', signing_key: s3cret}", False),
        ("{name: a, type: alertmanager, url: 'http://alertmanager:9093'}", False),
        ("{name: a, type: webhook, url: 'http://127.0.0.1:1/x', authorization: s3cret}", False),
    ],
)
def test_a_credential_goes_over_https_or_to_loopback(
    folder: Path, channel: str, refused: bool
) -> None:
    """The signing key is allowed over HTTP, because it is never sent."""
    (folder / "notify.yaml").write_text(f"channels:\n  - {channel}\n")
    environ = {"HOOK": "http://hook.example.org/s3cret"}
    if refused:
        with pytest.raises(DocumentError, match="allow it with insecure_credentials") as error:
            load_configuration(folder / "notify.yaml", environ)
        assert "s3cret" not in str(error.value)
        channel = channel.replace("}", ", insecure_credentials: true}")
        (folder / "notify.yaml").write_text(f"channels:\n  - {channel}\n")
    assert load_configuration(folder / "notify.yaml", environ).channels


def test_a_secret_is_in_no_text_of_the_configuration(folder: Path) -> None:
    shown = repr(load(folder, WHOLE))
    for secret in ("R0UT1NG", "hooks.example.org", "abc", "s3cret"):
        assert secret not in shown


CHANNEL = "channels:\n  - {name: a, type: "


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ":1: 0 documents; allowed: exactly one"),
        ("channels: []\n", ":1: channels: 0 channels; allowed: 1 to 32"),
        ("channels: {}\n", ":1: channels: must be a sequence"),
        ("chanels: []\n", ":1: chanels: no such key; allowed: explorer_url, channels"),
        (CHANNEL + "email, url: x}", ":2: channels[0].type: 'email'; allowed: alertmanager, web"),
        (CHANNEL + "slack}", ":2: channels[0].url: is missing; give one of url, url_env, url_file"),
        (CHANNEL + "pagerduty}", "channels[0].routing_key: is missing; give one of routing_key, "),
        (CHANNEL + "slack, routing_key: k}", ":2: channels[0].routing_key: slack has no such key"),
        (CHANNEL + "slack, url_env: NONE}", "url_env: 'NONE': this environment variable"),
        (CHANNEL + "slack, url_env: EMPTY}", "url_env: the secret is empty"),
        (CHANNEL + "slack, url_env: ODD}", "url_env: must have at most 4,096 printable ASCII"),
        (CHANNEL + "slack, url_file: none}", "url_file: '"),
        (CHANNEL + 'slack, url: "https://x/", url_env: Y}', "url_env: url is given too"),
        (CHANNEL + 'slack, url: "ftp://x/T0K3N"}', "url: is not an address; allowed: http://host/"),
        (CHANNEL + 'slack, url: "https://[::1/T0K3N"}', "url: is not an address; allowed: http://"),
        (CHANNEL + 'slack, url: "https://x:99999999/T0K3N"}', "url: is not an address; allowed: "),
        (CHANNEL + 'slack, url: "https://u:T0K3N@x/"}', "url: must not contain user and password"),
        (CHANNEL + 'slack, url: "https://x/#T0K3N"}', "url: must not contain a fragment"),
        (
            CHANNEL + 'slack, url: "https://x/", severities: [pgae]}',
            "'pgae'; allowed: page, ticket",
        ),
        (
            CHANNEL + 'slack, url: "https://x/", severities: []}',
            "severities: must be a sequence of",
        ),
        (CHANNEL + 'slack, url: "https://x/", severities: page}', "severities: must be a sequence"),
        (
            CHANNEL + 'slack, url: "https://x/", severities: [page, page]}',
            "severities: 'page' is given twice",
        ),
        (
            CHANNEL + 'slack, url: "https://x/"}\n  - {name: a, type: slack, url: "https://y/"}',
            ":3: channels[1].name: 'a': another channel has this name",
        ),
        ("channels:\n  - {name: A b, type: slack}", "name: 'A b'; allowed: a-z, 0-9 and -"),
        ("explorer_url: x\n" + CHANNEL + 'slack, url: "https://x/"}', ":1: explorer_url: 'x': is"),
        ("a: &x [1]\nb: *x\n", ":1: anchors and aliases"),
    ],
)
def test_an_error_names_the_key_and_no_secret(folder: Path, text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load(folder, text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(folder / "notify.yaml"))
    assert "T0K3N" not in str(caught.value)


def test_files_that_are_no_text_are_refused(folder: Path) -> None:
    (folder / "slack-url").write_bytes(b"T0K3N\xff")
    with pytest.raises(DocumentError, match="is not ASCII text") as caught:
        load(folder, WHOLE)
    assert caught.value.__cause__ is None
    (folder / "notify.yaml").write_bytes(b"\xff")
    with pytest.raises(DocumentError, match="is not UTF-8 text"):
        load_configuration(folder / "notify.yaml", {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text() | st.text("{}[]:, \n-aechlnsu", max_size=40).map(lambda s: WHOLE + s))
def test_any_text_is_read_or_refused(folder: Path, text: str) -> None:
    try:
        load(folder, text)
    except (DocumentError, UnicodeEncodeError):
        return
