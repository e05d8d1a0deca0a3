"""httpx transports that send through a gate, for both packages of httpx."""

from tidegate._transport.base import SdkRetries
from tidegate._transport.clients import (
    TransportName,
    check_transport_name,
    is_gated,
    new_client,
    new_transport,
    place_below,
    wrap_client,
)
from tidegate._transport.httpx_family import FamilyName, HttpxFamily, family_of, family_or_default

__all__ = [
    "FamilyName",
    "HttpxFamily",
    "SdkRetries",
    "TransportName",
    "check_transport_name",
    "family_of",
    "family_or_default",
    "is_gated",
    "new_client",
    "new_transport",
    "place_below",
    "wrap_client",
]
