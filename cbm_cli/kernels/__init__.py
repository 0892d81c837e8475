"""Every compiled function: random numbers, units, sweeps, gradients, training, partition function.

Arrays are float32, C-contiguous, (row, unit); the paper's letters W b c mu lam stand for the
machine's parameters and offsets. All kernels release the GIL and allocate nothing in an update.
"""

import ast
import hashlib
from functools import cache
from pathlib import Path

# Bumped when a golden value moves (tests/golden), whatever moved it: kernels, start or trial.
# 1: 0.1.0
KERNEL_VERSION = 1


@cache
def kernel_hash() -> str:
    """Hash what the kernels do: comments, docstrings, type hints and layout do not count.

    Part of every run-id, and of the name of the cache's folder.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(source.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                node.body = node.body[1:]
            if isinstance(node, ast.FunctionDef):
                node.returns = None
            if isinstance(node, ast.arg):
                node.annotation = None
        digest.update(source.name.encode() + ast.dump(tree).encode())
    return digest.hexdigest()[:12]
