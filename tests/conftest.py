"""What several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data_dir() -> Path:
    """Return the folder of real data files: CBM_DATA_DIR, else shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CBM_DATA_DIR") or beside).expanduser()
    if not any(any(place.glob("train-images-idx3-ubyte*")) for place in (folder, folder / "mnist")):
        pytest.skip(f"no MNIST files in {folder}; name their folder in CBM_DATA_DIR to run this test")
    return folder
