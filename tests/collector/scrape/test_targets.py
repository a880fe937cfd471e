import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingUDPServer
from typing import Any

import dns.asyncresolver
import dns.message
import dns.name
import dns.rcode
import dns.rrset
import pytest
import yaml

from collector.scrape.failure_reasons import DiscoveryError
from collector.scrape.targets import Discovery, DnsName, File, Target, place


def found(discovery: Discovery) -> list[Target]:
    return list(asyncio.run(discovery.targets()))


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000/metrics"),
        ("http://gpu-1:8000/", "http://gpu-1:8000/metrics"),
        ("https://gpu-1/engine/metrics?x=1", "https://gpu-1/engine/metrics?x=1"),
        ("http://gpu-1:8000/m?x=a+b", "http://gpu-1:8000/m?x=a+b"),
        ("http://gpu-1:8000/m?x=dns+http://x", "http://gpu-1:8000/m?x=dns+http://x"),
        ("http://[::1]:8000/metrics", "http://[::1]:8000/metrics"),
    ],
)
def test_an_address_is_its_own_target(given: str, url: str) -> None:
    [target] = found(place(given))
    assert target.url == url
    assert target.replica in url


@pytest.mark.parametrize(
    ("given", "named"),
    [
        *((given, "allowed") for given in ("gpu-1:8000", "ftp://x/", "http://", "http://x:99999/")),
        *((given, "allowed") for given in ("dns+ftp://x:1", "srv+http://x", "")),
        ("dns+http://name", "port"),
        ("http://me:secret@gpu-1:8000", "credentials"),
    ],
)
def test_an_invalid_address_is_refused_without_its_password(given: str, named: str) -> None:
    with pytest.raises(ValueError, match=named) as raised:
        place(given)
    assert "secret" not in str(raised.value)


def test_an_unknown_name_is_an_error_and_not_no_targets() -> None:
    """After the error, the previous targets stay in use."""
    with pytest.raises(DiscoveryError, match="no-such-name"):
        found(place("dns+http://no-such-name.invalid:8000"))


@pytest.fixture
def nameserver() -> Iterator[tuple[str, int]]:
    """Run a real name server on loopback that returns two servers for one service."""

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            data, socket = self.request
            answer = dns.message.make_response(dns.message.from_wire(data))
            name = answer.question[0].name
            if name.to_text() in ("_vllm._tcp.x.", "_vllm._tcp.pods.svc.cluster.local."):
                answer.answer.append(
                    dns.rrset.from_text(name, 5, "IN", "SRV", "0 0 8001 a.x.", "0 0 8002 b.x.")
                )
            else:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            socket.sendto(answer.to_wire(), self.client_address)

    with ThreadingUDPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield str(server.server_address[0]), server.server_address[1]
        server.shutdown()
        thread.join()


def test_each_srv_record_is_a_target(nameserver: tuple[str, int]) -> None:
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = [nameserver[0]], nameserver[1]
    name = DnsName("given", "dnssrv", "https", "_vllm._tcp.x", None, "/metrics", resolver)
    assert found(name) == [
        Target("https://a.x:8001/metrics", "a.x:8001"),
        Target("https://b.x:8002/metrics", "b.x:8002"),
    ]
    resolver.search = [dns.name.from_text("svc.cluster.local")]
    relative = DnsName("given", "dnssrv", "https", "_vllm._tcp.pods", None, "/metrics", resolver)
    assert len(found(relative)) == 2
    unknown = DnsName("given", "dnssrv", "https", "_other._tcp.x", None, "/metrics", resolver)
    with pytest.raises(DiscoveryError, match="given"):
        found(unknown)


GROUPS = [
    {"targets": ["gpu-1:8000"], "labels": {"replica": "chat-1", "region": "eu", "team": "x"}},
    {
        "targets": ["gpu-2:8000", "gpu-3:8000"],
        "labels": {"__scheme__": "https", "__metrics_path__": "/m"},
    },
]


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_the_targets_file_is_read_each_time(tmp_path: Path, kind: str) -> None:
    """The file has the format of Prometheus' `file_sd`."""
    path = tmp_path / f"targets.{kind}"
    write = json.dumps if kind == "json" else yaml.safe_dump
    path.write_text(write(GROUPS))
    assert found(File(path)) == [
        Target("http://gpu-1:8000/metrics", "chat-1", "eu"),
        Target("https://gpu-2:8000/m", "gpu-2:8000"),
        Target("https://gpu-3:8000/m", "gpu-3:8000"),
    ]
    path.write_text(write(GROUPS[:1]))
    assert len(found(File(path))) == 1


def test_a_path_without_a_slash_begins_at_the_root(tmp_path: Path) -> None:
    """Prometheus adds the slash too."""
    path = tmp_path / "targets.json"
    groups = [{"targets": ["gpu-1", "gpu-2:80"], "labels": {"__metrics_path__": "m"}}]
    path.write_text(json.dumps(groups))
    assert [each.url for each in found(File(path))] == ["http://gpu-1/m", "http://gpu-2:80/m"]


@pytest.mark.parametrize(
    "group",
    [
        {"targets": [["x" * 10**6]]},
        {"targets": ["http://" + "x" * 10**6]},
        {"targets": ["[" + "x" * 10**6]},
        {"targets": ["x:1"], "labels": {"region": ["x" * 10**6]}},
        {"targets": ["x:1"], "labels": {"__scheme__": ["x" * 10**6]}},
        {"targets": ["x:1", "y:1"], "labels": {"replica": "x" * 10**6}},
    ],
)
def test_a_message_about_a_long_value_is_short(tmp_path: Path, group: dict[str, Any]) -> None:
    path = tmp_path / "targets.json"
    path.write_text(json.dumps([group]))
    with pytest.raises(DiscoveryError) as refused:
        found(File(path))
    assert len(str(refused.value)) < 1_000


def test_aliases_cannot_make_a_small_file_large(tmp_path: Path) -> None:
    """The value would have 10 billion characters."""
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = tmp_path / "targets.yaml"
    path.write_text("\n  ".join(["- a0: &a0 [a]", *levels, "targets: [*a9]"]))
    with pytest.raises(DiscoveryError, match="more than 4,194,304 characters"):
        found(File(path))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "targets.json"),
        ("{}", "list of groups"),
        ('[{"labels": {}}]', r"\[0\]: must have `targets`"),
        ('[{"targets": [1]}]', "1 is not HOST:PORT"),
        ('[{"targets": ["http://x:1"]}]', "not HOST:PORT"),
        ('[{"targets": ["me:pw@x:1"]}]', "credentials"),
        ('[{"targets": ["x:1"], "labels": []}]', None),
        ('[{"targets": ["x:1"], "labels": "y"}]', "labels"),
        ('[{"targets": ["x:1"], "labels": {"replica": 3}}]', "3 is not a text"),
        ('[{"targets": ["x:1", "y:1"], "labels": {"replica": "a"}}]', "names several targets"),
        ('[{"targets": ["x:1"], "labels": {"__scheme__": "gopher"}}]', "is not an address"),
        ('[{"targets": ["x:1"], "labels": {"__scheme__": "dns+http"}}]', "http, https"),
        (
            '[{"targets": ["x:1"], "labels": {"replica": "a"}},'
            ' {"targets": ["y:1"], "labels": {"replica": "a"}}]',
            "'a' names two targets",
        ),
        ("[" * 100_000, "targets.json"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, named: str | None) -> None:
    path = tmp_path / "targets.json"
    path.write_text(text)
    if named is None:
        assert found(File(path))
    else:
        with pytest.raises(DiscoveryError, match=named):
            found(File(path))
    with pytest.raises(DiscoveryError, match="nowhere"):
        found(File(tmp_path / "nowhere.yaml"))
