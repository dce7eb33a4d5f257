"""Files below one root, through Hadoop's file systems: the driver can move what Spark can write.

Paths are as Spark takes them (`/data/archive`, `hdfs://…`, `s3a://…`); names are relative to the
root. A rename is the commit of everything here; it is atomic on local disks and HDFS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Files:
    """The files of one directory tree."""

    def __init__(self, spark: Any, root: str | Path) -> None:
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        text = str(root).rstrip("/")
        self.root = text if "://" in text else str(Path(text).absolute())
        self._fs = self._path("").getFileSystem(self._conf)
        self._prefix = self._fs.makeQualified(self._path("")).toUri().getPath().rstrip("/") + "/"

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.at(name))

    def at(self, name: str) -> str:
        """The whole path of a name, as Spark takes it."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """Whether there is a file or directory of that name."""
        return bool(self._fs.exists(self._path(name)))

    def list(self, name: str = "") -> dict[str, int]:
        """The files below a directory, at any depth, with their sizes in bytes; {} without it."""
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
        """Moves a file; OSError if that fails."""
        self._fs.mkdirs(self._path(new).getParent())
        if not self._fs.rename(self._path(old), self._path(new)):
            raise OSError(f"{self.at(old)} could not be renamed to {self.at(new)}")

    def delete(self, name: str) -> None:
        """Deletes a file or directory with its contents; nothing if it does not exist."""
        self._fs.delete(self._path(name), True)

    def footer(self, name: str) -> Any:
        """The footer of a Parquet file (parquet-mr's ParquetMetadata)."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        source = hadoop.util.HadoopInputFile.fromPath(self._path(name), self._conf)
        reader = hadoop.ParquetFileReader.open(source)
        try:
            return reader.getFooter()
        finally:
            reader.close()
