"""How the code is laid out: short functions of few parameters, every name once, imports one way."""

import ast
import configparser
import graphlib
from itertools import chain
from pathlib import Path

import cbm_cli

ROOT = Path(cbm_cli.__file__).parent


def nodes_of(*rooms, kind):
    sources = [path for room in rooms for path in [*ROOT.glob(f"{room}.py"), *ROOT.glob(f"{room}/**/*.py")]]
    assert sources
    nodes = (node for path in sorted(sources) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
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
    for room, many in MANY.items():
        functions = nodes_of(room, kind=ast.FunctionDef)
        counts = {f.name: len([a for a in f.args.args if a.arg != "self"]) for f in functions}
        assert len([name for name, count in counts.items() if count > 6]) <= many, room


def test_no_two_classes_and_no_two_files_have_the_same_name():
    rooms = "kernels", "machines", "trial", "reference"
    classes = [node.name for node in nodes_of(*rooms, kind=ast.ClassDef)]
    files = [path.name for room in rooms for path in (ROOT / room).glob("[a-z]*.py")]
    for names in (classes, files):
        assert len(names) == len(set(names))


def modules():
    """Paths of all modules of the package by name; a package has the name of its folder."""
    paths = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


def imported(path, known):
    """Modules that a module imports anywhere: for types, in functions, and by their names."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in names)
        elif isinstance(node, ast.Constant) and node.value in known:
            yield node.value
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            start = node.values[0].value
            yield from (name for name in known if start.startswith("cbm_cli.") and name.startswith(start))


def test_no_import_points_up_and_none_makes_a_circle():
    known = modules()
    imports = {name: {*imported(path, known)} & {*known} - {name} for name, path in known.items()}
    del imports["cbm_cli.cli.__main__"]
    *_, order = graphlib.TopologicalSorter(imports).static_order()
    assert order  # a circle raises CycleError, which names it
    config = configparser.ConfigParser()
    config.read(ROOT.parent / "setup.cfg")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")
    height = {room.strip(): -n for n, line in enumerate(lines) for room in line.split("|") if room.strip()}

    def height_of(module):
        return height[".".join(module.split(".")[:2])]

    del imports["cbm_cli"]  # the face of the package, which nothing imports
    pairs = chain.from_iterable(((name, one) for one in found) for name, found in imports.items())
    assert [(name, one) for name, one in pairs if height_of(name) < height_of(one)] == []
