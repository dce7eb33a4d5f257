"""A network of its own for each broker, so that connections between processes can be cut.

Each broker runs in a network namespace. A bridge connects the namespaces with this machine, where
the clients and ZooKeeper run. Isolated ports of a bridge reach all ports that are not isolated, but
not each other. So packets between two isolated brokers are dropped silently, but clients and
ZooKeeper reach both brokers. This needs root and the `ip` command.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from ottla.tools.cli.local_cluster import CHROOT, LocalCluster


def run(*words: str) -> None:
    """Call `ip` once. Raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def why_not() -> str:
    """Says what is missing for such a network; "" if nothing is missing."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "cut connections need root and the ip command (apt install iproute2)"
    probe = f"ottla-probe-{os.getpid()}"
    try:
        run("netns", "add", probe)
        run("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"cut connections need network namespaces: {error.stderr.strip()}"
    return ""


class Network:
    """The bridge and the namespaces of nodes 1 to `nodes`."""

    def __init__(self, nodes: int) -> None:
        number = os.getpid() % 60_000
        self.subnet = f"10.{200 + number // 1000 % 50}.{number % 250}"
        self.bridge, self.host = f"ot{number}", f"{self.subnet}.254"
        self.nodes = range(1, nodes + 1)

    def name(self, node: int) -> str:
        """The name of a node's namespace, and of its port on the bridge."""
        return f"{self.bridge}n{node}"

    def address(self, node: int) -> str:
        return f"{self.subnet}.{node}"

    def __enter__(self) -> Network:
        run("link", "add", self.bridge, "type", "bridge")
        run("addr", "add", f"{self.host}/24", "dev", self.bridge)
        run("link", "set", self.bridge, "up")
        for node in self.nodes:
            name = self.name(node)
            run("netns", "add", name)
            run("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("link", "set", name, "master", self.bridge, "up")
            run("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            run("-n", name, "link", "set", "eth0", "up")
            run("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            subprocess.run(["ip", "netns", "del", self.name(node)], check=False)
        subprocess.run(["ip", "link", "del", self.bridge], check=False)

    def host_brokers(self, cluster: LocalCluster) -> None:
        """Configure a cluster, before it starts, to run in these namespaces."""
        assert cluster.zookeeper is not None
        cluster.zookeeper.host = self.host
        for node, broker in cluster.brokers.items():
            broker.address = f"{self.address(node)}:{broker.port}"
            broker.prefix = ["ip", "netns", "exec", self.name(node)]
            broker.settings += [
                f"listeners=PLAINTEXT://{broker.address}",
                f"zookeeper.connect={cluster.zookeeper.connect}{CHROOT}",
            ]

    def cut(self, one: int, other: int) -> None:
        """Cut the connections between two brokers."""
        for node in (one, other):
            run("link", "set", "dev", self.name(node), "type", "bridge_slave", "isolated", "on")

    def silence(self, node: int) -> None:
        """Cut all connections of a broker."""
        run("link", "set", self.name(node), "down")

    def heal(self) -> None:
        """Restore all connections."""
        for node in self.nodes:
            run("link", "set", "dev", self.name(node), "type", "bridge_slave", "isolated", "off")
            run("link", "set", self.name(node), "up")
