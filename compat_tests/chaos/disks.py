"""A disk of its own for each broker: an ext4 file system in a file, on a loop device.

So a disk can be full, fail, or lose what was not flushed, as real disks do. A power cut is the
ioctl FS_IOC_SHUTDOWN, which exists for tests of file systems. After it, neither data nor journal
reach the disk, and the next mount finds only what was there before. All of this needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from ottla.tools.cli.local_cluster import LocalCluster
from tests.broker.crashes.loop_disk import cut_power, run

SIZE = 4 << 30
"""The size of a disk, in bytes; its file is sparse."""
PROBE_SIZE = 16 << 20
BALLOON = "balloon"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
WITH_BOOT_ID = f'mount --bind "$0" {BOOT_ID} && exec "$@"'


def why_not() -> str:
    """Says what is missing for such disks; "" if nothing is missing."""
    tools = ("mkfs.ext4", "mount", "umount", "unshare")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        return "disks of their own need root, mkfs.ext4 and loop devices"
    with tempfile.TemporaryDirectory() as place:
        disk = LoopDisk(Path(place) / "image", Path(place) / "mount", PROBE_SIZE)
        try:
            disk.make()
            disk.mount()
            cut_power(disk.at)
            disk.unmount()
            run("unshare", "-m", "sh", "-c", WITH_BOOT_ID, disk.image, "true")
        except OSError as error:
            with contextlib.suppress(OSError):
                disk.unmount()
            return f"disks of their own need loop mounts: {error}"
    return ""


class LoopDisk:
    """One disk: `image` is its file, `at` is its mount point."""

    def __init__(self, image: Path, at: Path, size: int = SIZE) -> None:
        self.image, self.at, self.size = image, at, size

    def make(self) -> None:
        """Make a new, empty disk."""
        self.at.mkdir(parents=True, exist_ok=True)
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(self.size)
        run("mkfs.ext4", "-q", "-m", "0", self.image)

    def mount(self) -> None:
        run("mount", "-o", "loop", self.image, self.at)
        with contextlib.suppress(OSError):
            (self.at / "lost+found").rmdir()

    def unmount(self) -> None:
        run("umount", self.at)

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.at / BALLOON).open("wb") as balloon:
            for size in (1 << 20, 4096):
                while True:
                    space = os.statvfs(self.at)
                    wanted = max(size, space.f_bavail * space.f_frsize // size * size // 2)
                    try:
                        os.posix_fallocate(balloon.fileno(), os.fstat(balloon.fileno()).st_size,
                                           wanted)
                    except OSError:
                        if wanted == size:
                            break

    def make_room(self) -> None:
        """Undo `fill`. Without the fsync, the next power cut would fill the disk again."""
        (self.at / BALLOON).unlink(missing_ok=True)
        directory = os.open(self.at, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


class Disks:
    """The disks of a cluster's brokers, each mounted at its log directory."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.brokers = cluster.brokers
        self.place = cluster.directory
        self.disks = {
            node: LoopDisk(self.place / f"disk-{node}.ext4", self.place / f"broker-{node}")
            for node in cluster.brokers
        }

    def __enter__(self) -> Disks:
        # Each broker has its own mount namespace (`unshare -m`, `ip netns exec`). An unmount here
        # must propagate to it, because a disk that is mounted there must not be mounted again here.
        self.place.mkdir(parents=True, exist_ok=True)
        run("mount", "--bind", self.place, self.place)
        try:
            run("mount", "--make-shared", self.place)
            for node, disk in self.disks.items():
                disk.make()
                disk.mount()
                broker = self.brokers[node]
                broker.prefix = [
                    *broker.prefix, "unshare", "-m", "--propagation", "slave",
                    "sh", "-c", WITH_BOOT_ID, str(self.boot_id(node)),
                ]
                self.boot(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for at in (*(disk.at for disk in self.disks.values()), self.place):
            with contextlib.suppress(OSError):
                run("umount", at)

    def boot_id(self, node: int) -> Path:
        """The file that a broker sees as its kernel's boot id."""
        return self.place / f"boot-{node}"

    def boot(self, node: int) -> None:
        """Give a broker a new boot id, as after a boot of its machine."""
        self.boot_id(node).write_text(f"{uuid.uuid4()}\n")

    @contextlib.contextmanager
    def full(self, nodes: list[int]) -> Iterator[None]:
        """Keep these brokers' disks full during the `with` block."""
        try:
            for node in nodes:
                self.disks[node].fill()
            yield
        finally:
            for node in nodes:
                self.disks[node].make_room()

    def fail(self, node: int) -> None:
        """Let every access to this broker's disk fail from now on."""
        cut_power(self.disks[node].at)

    def mend(self, node: int) -> None:
        """Let a failed disk, or the disk of a machine without power, work again, with the data that
        are on it. Its broker must have ended."""
        self.disks[node].unmount()
        self.disks[node].mount()

    def replace(self, node: int) -> None:
        """Replace a disk by a new, empty one. Its broker must have ended."""
        self.disks[node].unmount()
        self.disks[node].make()
        self.disks[node].mount()
