"""How the compiled code is laid out: short functions of few parameters."""

import ast
from pathlib import Path

from cbm_cli import kernels


def test_functions_of_the_kernels_are_short_and_few_have_many_parameters():
    sources = sorted(Path(kernels.__file__).parent.glob("*.py"))
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    assert not [f.name for f in functions if f.end_lineno - f.lineno + 1 > 40]
    assert len([f.name for f in functions if len(f.args.args) > 6]) <= 12
