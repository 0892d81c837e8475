"""Tests of the repository: of its pages, pictures, scripts and distributions."""

from pathlib import Path

import pytest

if not (Path(__file__).parents[2] / "mkdocs.yml").exists():
    pytest.skip(
        "the repository is not there next to these tests", allow_module_level=True
    )
