"""How the code is laid out: short functions of few parameters."""

import ast
from pathlib import Path

import cbm_cli
import pytest

ROOT = Path(cbm_cli.__file__).parent


def functions_of(package=""):
    """The functions of a package or module of cbm_cli; of all without a name."""
    parts = {path: path.relative_to(ROOT).parts[0] for path in ROOT.rglob("*.py")}
    paths = [path for path, part in parts.items() if package in ("", part.removesuffix(".py"))]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    found = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert found
    return found


def test_functions_are_short():
    """At most 40 lines below the signature and the docstring."""
    long = []
    for function in functions_of():
        body = function.body[bool(ast.get_docstring(function)) :]
        if body and function.end_lineno - body[0].lineno >= 40:
            long.append(function.name)
    assert long == []


MANY = {"kernels": 12, "machines": 1, "trial": 1, "reference": 3, "statistics": 0, "report": 0}


@pytest.mark.parametrize(("package", "many"), MANY.items())
def test_few_functions_have_many_parameters(package, many):
    counts = [len([it for it in f.args.args if it.arg != "self"]) for f in functions_of(package)]
    assert len([count for count in counts if count > 6]) <= many
