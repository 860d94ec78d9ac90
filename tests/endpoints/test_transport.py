"""Connections go to addresses that were checked, with the name's certificate."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from judge_server import scores, serving

from strop.endpoints.addresses import BlockedAddress, why_blocked
from strop.endpoints.transport import GuardedTransport, Resolve

SENT = ("host", "content-length", "content-type")


def names(found: dict[str, Sequence[str]]) -> Resolve:
    """A resolver with names of its own, which checks addresses like the real one."""

    async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
        for address in found[host]:
            if why_blocked(ipaddress.ip_address(address), allow_private):
                raise BlockedAddress(f"{host} leads to {address}")
        return list(found[host])

    return resolve


def status(url: str, resolve: Resolve, verify: ssl.SSLContext | bool = True) -> int:
    async def main() -> int:
        transport = GuardedTransport(True, SENT, verify, resolve)
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as client:
            return (await client.post(url, json={})).status_code

    return asyncio.run(main())


def test_the_name_is_resolved_by_us_and_sent_along() -> None:
    with serving(scores(1)) as server:
        port = server.server_address[1]
        assert status(f"http://judge.test:{port}/v1", names({"judge.test": ["127.0.0.1"]})) == 200
    assert server.headers[0]["host"] == f"judge.test:{port}"


def test_a_second_address_is_tried_where_the_first_is_dead() -> None:
    with serving(scores(1)) as server:
        port = server.server_address[1]
        assert status(f"http://judge.test:{port}/", names({"judge.test": ["127.9.9.9", "127.0.0.1"]})) == 200


def test_a_name_that_leads_out_of_bounds_is_not_connected_to() -> None:
    with pytest.raises(BlockedAddress):
        status("http://judge.test/", names({"judge.test": ["127.0.0.1", "169.254.169.254"]}))


def certificate(folder: Path, name: str) -> Path:
    """A key and a certificate of its own for a name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - datetime.timedelta(days=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(("name", "fits"), [("judge.test", True), ("other.test", False)])
def test_the_certificate_must_be_the_names_and_not_the_addresss(tmp_path: Path, name: str, fits: bool) -> None:
    pem = certificate(tmp_path, "judge.test")
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(pem)
    trusting = ssl.create_default_context(cafile=str(pem))
    with serving(scores(1)) as server:
        server.socket = ours.wrap_socket(server.socket, server_side=True)
        url, resolve = f"https://{name}:{server.server_address[1]}/", names({name: ["127.0.0.1"]})
        if fits:
            assert status(url, resolve, trusting) == 200
        else:
            with pytest.raises(httpx2.ConnectError, match="certificate"):
                status(url, resolve, trusting)
