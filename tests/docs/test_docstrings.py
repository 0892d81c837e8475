"""Examples in docstrings print what they show."""

import doctest
from importlib import import_module

import cbm_cli
import numpy as np
import pytest

from tests.builders import PACKAGE

FILES = [path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_in_docstrings_print_what_they_show(path, here):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    imported = {"cbm": cbm_cli, "np": np}  # as docs/python.md begins
    result = doctest.testmod(import_module(name), extraglobs=imported)
    assert result.attempted
    assert not result.failed
