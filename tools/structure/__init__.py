"""Checks of the repository's structure."""
