"""Transports for both httpx families, made for whichever the client at hand uses."""

from tidegate._transport.clients import TransportName, checked, gated, regated
from tidegate._transport.family import FamilyName, family_of, named_or_preferred

__all__ = ["FamilyName", "TransportName", "checked", "family_of", "gated", "named_or_preferred", "regated"]
