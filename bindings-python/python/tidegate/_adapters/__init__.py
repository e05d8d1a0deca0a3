"""Adapters of HTTP libraries other than httpx: requests, botocore and aiohttp.

Each module imports its library, and is imported on first use. The library opens the connections,
below the gate, so that proxies, TLS settings and timeouts are those of the library.
"""
