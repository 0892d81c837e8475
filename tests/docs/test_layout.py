"""How the code is laid out: in short functions."""

import ast

from tests.builders import PACKAGE


def test_functions_are_short():
    """At most 40 lines below the signature and the docstring."""
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    functions = [it for it in nodes if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert len(functions) > 1000
    long = []
    for function in functions:
        body = function.body[bool(ast.get_docstring(function)) :]
        if body and function.end_lineno - body[0].lineno >= 40:
            long.append(function.name)
    assert long == []
