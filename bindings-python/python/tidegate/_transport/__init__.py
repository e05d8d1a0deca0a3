"""httpx transports that send through a gate, for both packages of httpx."""

from tidegate._transport.base import SdkRetries
from tidegate._transport.clients import TransportName, check_transport_name, new_client, new_transport, wrap_client
from tidegate._transport.httpx_family import FamilyName, family_of, family_or_default

__all__ = [
    "FamilyName",
    "SdkRetries",
    "TransportName",
    "check_transport_name",
    "family_of",
    "family_or_default",
    "new_client",
    "new_transport",
    "wrap_client",
]
