from pathlib import Path

import pytest

from alerts.errors import DocumentError
from analysis.sign_in_file import SignIn, load_sign_in

WHOLE = """\
issuer: https://login.example.org/realms/ops
client_id: tailspan
client_secret_env: CLIENT_SECRET
url: https://ops.example.org/tail/span/
allow: ["@Example.org", jane@partner.example]
session: 8h
"""
ENVIRON = {"CLIENT_SECRET": "S3CRET"}


def load(folder: Path, text: str) -> SignIn:
    (folder / "sign-in.yaml").write_text(text)
    return load_sign_in(folder / "sign-in.yaml", ENVIRON)


def test_all_keys_are_read(tmp_path: Path) -> None:
    read = load(tmp_path, WHOLE)
    assert read.metadata_url == (
        "https://login.example.org/realms/ops/.well-known/openid-configuration"
    )
    assert (read.base_path, read.host, read.provider) == (
        *("tail/span", "ops.example.org"),
        "login.example.org",
    )
    assert read.allow == ("@example.org", "jane@partner.example")
    assert (read.session_s, read.trusts_unverified) == (8 * 3_600, False)
    assert read.client_secret.reveal() == "S3CRET"
    assert "S3CRET" not in repr(read)


def test_the_issuer_may_be_its_discovery_address(tmp_path: Path) -> None:
    """Identity providers show their discovery address, and users copy it."""
    whole = WHOLE.replace("/realms/ops", "/realms/ops/.well-known/openid-configuration")
    assert load(tmp_path, whole).issuer == "https://login.example.org/realms/ops"


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        ("client_id: tailspan\n", "", ":1: client_id: is missing"),
        ("client_secret_env: CLIENT_SECRET\n", "", ":1: client_secret: is missing; give one of"),
        (
            "CLIENT_SECRET",
            "NONE",
            ":3: client_secret_env: 'NONE': this environment variable is not set",
        ),
        ("https://login", "http://login", ":1: issuer: 'http://login.example.org/realms/ops'; al"),
        ("https://ops", "http://ops", ":4: url: 'http://ops.example.org/tail/span'; allowed: htt"),
        ("https://ops", "https://u:T0K3N@ops", ":4: url: must not contain a user"),
        ("/tail/span/", "/tail?x=1", ":4: url: "),
        ('["@Example.org", jane@partner.example]', "[]", ":5: allow: must be a sequence of"),
        ('["@Example.org", jane@partner.example]', "example.org", ":5: allow: must be a sequence"),
        ("jane@partner.example", "partner.example", ":5: allow: 'partner.example'; allowed: jane@"),
        ("jane@partner.example", '"*@partner.example x"', ":5: allow: "),
        ("session: 8h", "session: 8", ":6: session: '8'; allowed: a whole number"),
        ("session: 8h", "session: 31d", ":6: session: 31d; allowed: at most 30d"),
        ("session: 8h", "unverified_email: yes", ":6: unverified_email: 'yes'; allowed: refuse"),
        ("session: 8h", "cookie_secret: x", ":6: cookie_secret: no such key; allowed: issuer, "),
        (WHOLE, "", ":1: 0 documents; allowed: exactly one"),
    ],
)
def test_an_error_contains_the_key(tmp_path: Path, line: str, instead: str, problem: str) -> None:
    assert line in WHOLE
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, WHOLE.replace(line, instead))
    assert f"sign-in.yaml{problem}" in str(caught.value)
    assert "T0K3N" not in str(caught.value)


def test_loopback_needs_no_tls(tmp_path: Path) -> None:
    """`127.0.0.1.example.org` is not a loopback address."""
    tried = WHOLE.replace("https://ops.example.org", "http://127.0.0.1:8501")
    assert load(tmp_path, tried).url == "http://127.0.0.1:8501/tail/span"
    with pytest.raises(DocumentError, match="url: "):
        load(tmp_path, WHOLE.replace("https://ops", "http://127.0.0.1.ops"))
