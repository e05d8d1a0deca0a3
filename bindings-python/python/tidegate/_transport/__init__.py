"""Transports for both httpx families, made for whichever the client at hand uses."""

from tidegate._transport.family import Family, family_of, preferred_family

__all__ = ["Family", "family_of", "preferred_family"]
