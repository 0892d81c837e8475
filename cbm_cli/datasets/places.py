"""Where data files are looked for."""

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "CBM_DATA_DIR"


def folders(name: str, data_dir: str | Path | None = None) -> list[Path]:
    """Return the folders in which the files of data set ``name`` are looked for, first choice first.

    Each of ``data_dir``, the environment's ``CBM_DATA_DIR`` and the user's cache counts twice: a folder
    ``name`` inside it, then itself.
    """
    places = [data_dir, os.environ.get(VARIABLE), user_cache_path("cbm") / "data"]
    roots = [Path(place).expanduser() for place in places if place]
    return list(dict.fromkeys(folder for root in roots for folder in (root / name, root)))


def find(folder: Path, stem: str) -> Path | None:
    """Return the file ``stem`` or ``stem.gz`` of ``folder``, the plain one first; None without either."""
    return next((path for end in ("", ".gz") if (path := folder / f"{stem}{end}").is_file()), None)
