"""Type aliases that several modules of the package share."""

from __future__ import annotations

from typing import Literal, TypeAlias

Lane = Literal["interactive", "standard", "batch"]
"""The priority class of a call, most urgent first."""

ContextArguments: TypeAlias = tuple[str | None, Lane | None, float | None]
"""Tenant, lane and deadline in seconds from now, each None if it is inherited."""

Mount = tuple[str, str, int | None, str | None, str | None]
"""One entry of an httpx client's mounts, as the native module takes it.

The parts are scheme, host, port, network and proxy URL. Scheme and host are empty, and port and
network are None, if the entry matches all of them. The proxy URL is None for a direct connection.
"""
