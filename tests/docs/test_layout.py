"""How the code is laid out: short functions of few parameters, every name once."""

import ast
from pathlib import Path

import cbm_cli

ROOT = Path(cbm_cli.__file__).parent


def nodes_of(*packages, kind):
    sources = [
        path
        for package in packages
        for path in [*ROOT.glob(f"{package}.py"), *ROOT.glob(f"{package}/**/*.py")]
    ]
    assert sources
    nodes = (
        node for path in sorted(sources) for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    return [node for node in nodes if isinstance(node, kind)]


def test_functions_are_short():
    """At most 40 lines below the signature and the docstring."""

    def lines(function):
        body = function.body[1:] if ast.get_docstring(function) else function.body
        return function.end_lineno - body[0].lineno + 1 if body else 0

    functions = nodes_of("*", kind=ast.FunctionDef | ast.AsyncFunctionDef)
    assert not [f.name for f in functions if lines(f) > 40]


MANY = {"kernels": 12, "machines": 1, "trial": 1, "reference": 3, "statistics": 0, "report": 0}


def test_few_functions_have_many_parameters():
    for package, many in MANY.items():
        functions = nodes_of(package, kind=ast.FunctionDef)
        counts = {f.name: len([a for a in f.args.args if a.arg != "self"]) for f in functions}
        assert len([name for name, count in counts.items() if count > 6]) <= many, package


def test_no_two_classes_and_no_two_files_have_the_same_name():
    packages = "kernels", "machines", "trial", "reference"
    classes = [node.name for node in nodes_of(*packages, kind=ast.ClassDef)]
    files = [path.name for package in packages for path in (ROOT / package).glob("[a-z]*.py")]
    for names in (classes, files):
        assert len(names) == len(set(names))
