"""Where data files are looked for, and where they are put."""

import os
from pathlib import Path

from platformdirs import user_cache_path

VARIABLE = "CBM_DATA_DIR"


def folders(name: str, data_dir: str | Path | None = None, inside: str = "") -> list[Path]:
    """Return the folders in which the files of data set ``name`` are looked for, first choice first.

    Each of ``data_dir``, the environment's ``CBM_DATA_DIR`` and the user's cache counts three times: a
    folder ``name`` inside it, the folder ``inside`` where `cbm data fetch` puts the files, then itself.
    """
    places = [data_dir, os.environ.get(VARIABLE), _cache()]
    roots = [Path(place).expanduser() for place in places if place]
    return list(dict.fromkeys(root / folder for root in roots for folder in (name, inside or name, "")))


def home() -> Path:
    """Return the folder that files are fetched into: that of ``CBM_DATA_DIR``, or the user's cache."""
    return Path(os.environ.get(VARIABLE) or _cache()).expanduser()


def find(folder: Path, stem: str) -> Path | None:
    """Return the file ``stem`` or ``stem.gz`` of ``folder``, the plain one first; None without either."""
    return next((path for end in ("", ".gz") if (path := folder / f"{stem}{end}").is_file()), None)


def _cache() -> Path:
    return user_cache_path("cbm") / "data"
