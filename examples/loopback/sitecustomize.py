"""Python imports this by itself where it is on the path: from here on, asking for another machine ends the program.

Frameworks report home, fetch price lists and tokenizers; an example that lets them would fail on a machine without a
network, and tell somebody about every run on one with it.
"""

import ipaddress
import os
import sys

HERE = ("localhost", "", None)


def watch(event: str, args: tuple[object, ...]) -> None:
    """Look at every name that is resolved, and at every address that is connected to."""
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
    sys.stderr.write(f"an example may talk to this machine alone, and this one asked for {host}\n")
    sys.stderr.flush()
    # No exception: telemetry is written so as to swallow them.
    os._exit(70)


sys.addaudithook(watch)
