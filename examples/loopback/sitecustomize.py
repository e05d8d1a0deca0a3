"""Ends the program if it connects to another machine. Python imports this module at startup.

Frameworks send telemetry, and download price lists and tokenizers. An example that lets them do so
would fail without a network, so it must switch that off.
"""

import ipaddress
import os
import sys

HERE = ("localhost", "", None)


def watch(event: str, args: tuple[object, ...]) -> None:
    """An audit hook that ends the process with exit status 70 if it reaches for another machine.

    It does so if the process resolves a name other than localhost, or connects to an address that
    is not loopback.
    """
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode()
    if host in HERE:
        return
    try:
        if ipaddress.ip_address(str(host)).is_loopback:
            return
    except ValueError:
        pass
    sys.stderr.write(f"examples may connect to loopback only, and this one tried {host}\n")
    sys.stderr.flush()
    # Not an exception, because telemetry code ignores exceptions.
    os._exit(70)


sys.addaudithook(watch)
