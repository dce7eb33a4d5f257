"""Waits until a broker answers: ready.py HOST PORT TIMEOUT_S [T0_NS [PID]].

Prints the milliseconds from T0_NS (by default the start of this script) to the first ApiVersions
and Metadata replies. Uses the standard library only.
"""

import os
import socket
import struct
import sys
import time

API_VERSIONS, METADATA = 18, 3


def ask(sock: socket.socket, api_key: int, version: int, body: bytes = b"") -> bytes:
    """Send one request with header version 1; returns the body of its reply."""
    message = struct.pack(">hhih", api_key, version, api_key, 5) + b"ready" + body
    sock.sendall(struct.pack(">i", len(message)) + message)
    with sock.makefile("rb") as replies:
        (size,) = struct.unpack(">i", replies.read(4).ljust(4, b"\xff"))
        reply = replies.read(size) if size >= 4 else b""
    if len(reply) != size or struct.unpack_from(">i", reply)[0] != api_key:
        raise OSError("the broker closed the connection")
    return reply[4:]


def wait_until_ready(
    host: str, port: int, timeout_seconds: float, started_ns: int, pid: int = 0
) -> tuple[float, float]:
    """Poll every 10 ms until the broker answers; returns the milliseconds from `started_ns` to the
    first ApiVersions reply, and to the first Metadata reply that lists a broker.

    Raises TimeoutError when the time is up, and ChildProcessError when process `pid` has ended.
    """
    deadline = time.monotonic() + timeout_seconds
    api_versions_ms = 0.0
    while time.monotonic() < deadline:
        if pid and not os.path.exists(f"/proc/{pid}"):
            raise ChildProcessError("the broker process ended")
        try:
            with socket.create_connection((host, port), 1) as sock:
                sock.settimeout(5)
                ask(sock, API_VERSIONS, 0)
                api_versions_ms = api_versions_ms or (time.time_ns() - started_ns) / 1e6
                # In Metadata v1, an empty list of topics asks for the brokers only.
                brokers = ask(sock, METADATA, 1, struct.pack(">i", 0))
                if struct.unpack_from(">i", brokers)[0] >= 1:
                    return api_versions_ms, (time.time_ns() - started_ns) / 1e6
        except OSError:
            pass
        time.sleep(0.01)
    raise TimeoutError(f"not ready after {timeout_seconds:.0f} s")


def main() -> None:
    """The command."""
    host, port, timeout_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    started_ns = int(sys.argv[4]) if len(sys.argv) > 4 else time.time_ns()
    pid = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    try:
        api, metadata = wait_until_ready(host, port, timeout_seconds, started_ns, pid)
    except (TimeoutError, ChildProcessError) as error:
        sys.exit(str(error))
    print(f"ready pid={pid} {host}:{port} apiversions_ms={api:.0f} metadata_ms={metadata:.0f}")


if __name__ == "__main__":
    main()
