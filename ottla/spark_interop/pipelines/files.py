"""Files below one root. Hadoop's file systems let the driver move the files that Spark writes.

Paths are as Spark takes them (`/data/archive`, `hdfs://…`, `s3a://…`); names are relative to the
root. Every commit is a rename, which is atomic on local disks and HDFS.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ottla.spark_interop.errors import PipelineError

TAIL_BYTES = 64 * 1024  # read from the end of a Parquet file: most footers fit into it


class Readable(Protocol):
    """A directory tree, with the operations that the checks of `recorded` use."""

    root: str

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or directory of that name."""

    def list(self, name: str = "") -> dict[str, int]:
        """The files below a directory, at any depth, with their sizes in bytes; {} if none."""

    def read(self, name: str) -> str:
        """A file as text."""


class LocalFiles:
    """The files of one directory tree on a local disk, read without a JVM."""

    def __init__(self, root: str | Path) -> None:
        self._place = Path(root).absolute()
        self.root = str(self._place)

    def at(self, name: str) -> str:
        """The whole path of a name."""
        return str(self._place / name)

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or directory of that name."""
        return (self._place / name).exists()

    def list(self, name: str = "") -> dict[str, int]:
        """The files below a directory, at any depth, with their sizes in bytes; {} if none."""
        return {
            str(file.relative_to(self._place)): file.stat().st_size
            for file in (self._place / name).rglob("*")
            if file.is_file()
        }

    def read(self, name: str) -> str:
        """A file as text. Raises PipelineError if it cannot be read."""
        try:
            return Path(self.at(name)).read_text()
        except (OSError, ValueError) as error:
            raise PipelineError(f"{self.at(name)} cannot be read: {error}") from error


class Files:
    """The files of one directory tree."""

    def __init__(self, spark: Any, root: str | Path) -> None:
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        text = str(root).rstrip("/")
        self.root = text if "://" in text else str(Path(text).absolute())
        self._fs = self._path("").getFileSystem(self._conf)
        self._prefix = self._fs.makeQualified(self._path("")).toUri().getPath().rstrip("/") + "/"
        self._local = self._fs.getScheme() == "file"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(name))

    def at(self, name: str) -> str:
        """The whole path of a name, as Spark takes it."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or directory of that name."""
        return bool(self._fs.exists(self._path(name)))

    def list(self, name: str = "") -> dict[str, int]:
        """The files below a directory, at any depth, with their sizes in bytes; {} if none."""
        if not self.exists(name):
            return {}
        found = {}
        items = self._fs.listFiles(self._path(name), True)
        while items.hasNext():
            status = items.next()
            found[status.getPath().toUri().getPath().removeprefix(self._prefix)] = status.getLen()
        return found

    def read(self, name: str) -> str:
        """A file as text."""
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Writes a text file atomically."""
        folder, _, base = name.rpartition("/")
        draft = f"{folder}/.{base}.tmp" if folder else f".{base}.tmp"
        stream = self._fs.create(self._path(draft), True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self.rename(draft, name)

    def rename(self, old: str, new: str) -> None:
        """Moves a file. Raises OSError if that fails."""
        self._fs.mkdirs(self._path(new).getParent())
        if not self._fs.rename(self._path(old), self._path(new)):
            raise OSError(f"{self.at(old)} could not be renamed to {self.at(new)}")

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Holds a lock while the block runs; a kill also releases it. Raises PipelineError if
        another process has it.

        Does nothing on file systems that are not local: they have no lock that a kill releases.
        """
        if not self._local:
            yield
            return
        import fcntl

        path = Path(self._prefix) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise PipelineError(
                    f"another pipeline writes to {self.root}: wait until it ends, or stop it"
                ) from None
            yield

    def delete(self, name: str) -> None:
        """Deletes a file or directory with its contents. Does nothing if it does not exist."""
        self._fs.delete(self._path(name), True)

    def rows(self, name: str, size: int) -> int:
        """How many rows a Parquet file of this size has."""
        return int(self.footer(name, size).num_rows)

    def footer(self, name: str, size: int) -> Any:
        """The metadata of a Parquet file of this size (pyarrow's FileMetaData)."""
        import pyarrow.parquet

        with Tail(self, name, size) as tail:
            return pyarrow.parquet.read_metadata(tail)

    def read_from(self, name: str, position: int) -> bytes:
        """The bytes of a file from a position to its end."""
        if self._local:     # 64 KiB through the JVM's socket take 50 ms, due to delayed ACKs
            with Path(self._prefix, name).open("rb") as file:
                file.seek(position)
                return file.read()
        stream = self._fs.open(self._path(name))
        try:
            stream.seek(position)
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()


class Tail(io.RawIOBase):
    """A file for readers that need only its end. One call to the JVM fetches the whole end, because
    each call costs as much as reading a footer."""

    def __init__(self, files: Files, name: str, size: int) -> None:
        self._files, self._name, self._size = files, name, size
        self._at = 0
        self._bytes = files.read_from(name, max(size - TAIL_BYTES, 0))

    def seekable(self) -> bool:
        """Always true."""
        return True

    def readable(self) -> bool:
        """Always true."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Sets the position in the file."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """The position in the file."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer from the position on."""
        if self._at < self._size - len(self._bytes):
            self._bytes = self._files.read_from(self._name, self._at)
        start = self._at - (self._size - len(self._bytes))
        chunk = self._bytes[start : start + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)
