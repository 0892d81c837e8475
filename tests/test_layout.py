"""How the code of the science is laid out: short functions of few parameters, every name once."""

import ast
from pathlib import Path

import pytest

import cbm_cli

ROOT = Path(cbm_cli.__file__).parent


def nodes_of(*rooms, kind):
    sources = [path for room in rooms for path in [*ROOT.glob(f"{room}.py"), *(ROOT / room).glob("*.py")]]
    assert sources
    nodes = (node for path in sorted(sources) for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return [node for node in nodes if isinstance(node, kind)]


@pytest.mark.parametrize(("room", "many"), [("kernels", 12), ("machines", 1), ("trial", 1), ("reference", 3)])
def test_functions_are_short_and_few_have_many_parameters(room, many):
    functions = nodes_of(room, kind=ast.FunctionDef)
    assert not [f.name for f in functions if f.end_lineno - f.lineno + 1 > 40]
    arguments = {f.name: len([a for a in f.args.args if a.arg != "self"]) for f in functions}
    assert len([name for name, count in arguments.items() if count > 6]) <= many


def test_no_two_classes_and_no_two_files_have_the_same_name():
    rooms = "kernels", "machines", "trial", "reference"
    classes = [node.name for node in nodes_of(*rooms, kind=ast.ClassDef)]
    assert len(classes) == len(set(classes))
    files = [path.name for room in rooms for path in (ROOT / room).glob("[a-z]*.py")]
    assert len(files) == len(set(files))
