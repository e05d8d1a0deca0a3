"""Ends the program if it connects to another machine. Python imports this module at startup.

Frameworks send telemetry and download price lists and tokenizers. An example that allows it would
fail without a network.
"""

import ipaddress
import os
import sys

HERE = ("localhost", "", None)


def watch(event: str, args: tuple[object, ...]) -> None:
    """Ends the process if it resolves another name than localhost or connects to another machine.

    An audit hook. The exit status is 70.
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
