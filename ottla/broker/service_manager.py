"""Notifies systemd of the state of a service of `Type=notify`, with datagrams (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time


def notify(*states: str) -> None:
    """Send states such as READY=1; without a service manager this does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.sendto("\n".join(states).encode(), address)
    except OSError:
        pass                            # the broker serves without the notification


def reloading() -> tuple[str, str]:
    """The states that announce a reload; READY=1 ends it."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"
