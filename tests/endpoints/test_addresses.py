"""Addresses that requests must not go to, in every spelling."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from strop.endpoints.addresses import BlockedAddress, check_url, resolve, why_blocked

METADATA = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:0:0:0:0:5601:5601",  # Teredo keeps the address inverted
    "100.100.100.200",
    "168.63.129.16",
    "fd00:ec2::254",
    "224.0.0.1",
    "ff02::1",
    "255.255.255.255",
]
PRIVATE = [
    "127.0.0.1",
    "::1",
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "172.16.3.4",
    "192.168.1.1",
    "100.64.0.1",
    "fd12::1",
    "fec0::1",
]
PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", METADATA)
@pytest.mark.parametrize("allow_private", [True, False])
def test_addresses_of_the_surroundings_are_never_allowed(address: str, allow_private: bool) -> None:
    assert why_blocked(ip_address(address), allow_private)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_allowed_where_that_is_wanted(address: str) -> None:
    assert why_blocked(ip_address(address), allow_private=True) is None
    assert why_blocked(ip_address(address), allow_private=False)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert why_blocked(ip_address(address), allow_private=False) is None


@pytest.mark.parametrize(
    "url", ["https://api.openai.com/v1", "http://localhost:8000/v1", "http://127.0.0.1:1/v1", "http://[::1]:8000"]
)
def test_ordinary_urls_pass(url: str) -> None:
    check_url(url, allow_private=True)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "base_url must begin with http:// or https:// and a host"),
        ("api.openai.com/v1", "base_url must begin with"),
        ("file:///etc/passwd", "base_url must begin with"),
        ("http:///v1", "base_url must begin with"),
        ("http://host:port/v1", "base_url is not a URL"),
        ("http://[::1/v1", "base_url is not a URL"),
        ("https://user:hunter2@example.org/v1", "base_url holds a user name or password"),
        ("http://169.254.169.254/latest", "base_url leads to 169.254.169.254"),
        ("http://[::ffff:169.254.169.254]/latest", "base_url leads to 169.254.169.254"),
        ("http://[fe80::1]/", "base_url leads to fe80::1"),
    ],
)
def test_other_urls_are_refused_by_the_name_of_the_setting(url: str, why: str) -> None:
    with pytest.raises(BlockedAddress) as caught:
        check_url(url, allow_private=True, setting="base_url")
    assert caught.value.param == "base_url"
    assert caught.value.message.startswith(why)
    assert "hunter2" not in caught.value.message


def resolved(host: str, allow_private: bool = True) -> list[str]:
    return asyncio.run(resolve(host, 80, allow_private))


def test_a_name_resolves_to_addresses() -> None:
    assert set(resolved("localhost")) & {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518"]
)
def test_numbers_in_any_notation_are_seen_through(host: str) -> None:
    with pytest.raises(BlockedAddress, match=r"leads to 169\.254\.169\.254"):
        resolved(host)


def test_names_of_this_machine_are_refused_where_private_is_not_allowed() -> None:
    with pytest.raises(BlockedAddress, match="this machine itself"):
        resolved("localhost", allow_private=False)


def test_a_name_that_does_not_exist_is_an_error_of_the_system() -> None:
    with pytest.raises(OSError):
        resolved("name.invalid")
