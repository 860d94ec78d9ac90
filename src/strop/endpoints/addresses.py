"""Allowed addresses for URLs from users.

A name is checked twice: by its spelling when it is configured, and by every address that it
resolves to when a connection is made, to exactly the address that was checked. In between, a
name can change its mind.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from strop.errors import InvalidRequest

# They return the machine's credentials to any local client.
_METADATA = frozenset(map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")))
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ip_network("::/96")

Address = IPv4Address | IPv6Address


class BlockedAddress(InvalidRequest):
    """A URL that leads where requests must not go."""


def check_url(url: str, allow_private: bool, setting: str = "url") -> None:
    """Refuse a URL that is malformed, carries a password, or names an address that is out of bounds.

    Does not resolve names: `resolve` does, when a connection is made. Raises BlockedAddress.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BlockedAddress(f"{setting} is not a URL: {error}", param=setting) from None
    if parts.scheme not in ("http", "https") or not host:
        raise BlockedAddress(f"{setting} must begin with http:// or https:// and a host", param=setting)
    if parts.username is not None or parts.password is not None:
        raise BlockedAddress(
            f"{setting} holds a user name or password; name a variable for the key instead", param=setting
        )
    try:
        address = ip_address(host)
    except ValueError:
        return
    reason = why_blocked(address, allow_private)
    if reason:
        raise BlockedAddress(f"{setting} leads to {reason}", param=setting)


async def resolve(host: str, port: int, allow_private: bool) -> list[str]:
    """The addresses of a host, all checked. Raises BlockedAddress, or OSError for an unknown name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for text in addresses:
        reason = why_blocked(ip_address(text), allow_private)
        if reason:
            raise BlockedAddress(f"{host} leads to {reason}", param="url")
    return addresses


def why_blocked(address: Address, allow_private: bool) -> str | None:
    """What an address is, if requests must not go there; private ones are a matter of `allow_private`."""
    inner = _embedded(address)
    if inner is not None:
        return why_blocked(inner, allow_private)
    if address.is_link_local or address in _METADATA:
        return f"{address}, an address of this machine's surroundings that gives away credentials"
    if address.is_unspecified or address.is_loopback:
        return None if allow_private else f"{address}, this machine itself"
    if address.is_multicast or address.is_reserved:
        return f"{address}, which is not the address of a single machine"
    if not address.is_global or (isinstance(address, IPv6Address) and address.is_site_local):
        return None if allow_private else f"{address}, an address in a private network"
    return None


def _embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for, in any of the ways there are."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped or address.sixtofour:
        return address.ipv4_mapped or address.sixtofour
    if address.teredo:
        return address.teredo[1]
    compatible = address in _COMPATIBLE and not (address.is_unspecified or address.is_loopback)
    if compatible or any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
