"""Plant one-line errors in the package and count those that tests notice; needs the
extra ``dev``.

    python benchmarks/mutations.py report statistics --planted 40 --folder mutations/

Changes of operators, constants, arguments, order and branches are drawn from the
sources of each package. The tests of the package run once under coverage. Each error
then runs the tests that reach its line, quickest first, in a copy of the repository.
FOLDER/PACKAGE.csv keeps the outcomes: an interrupted run continues. Errors that survive
for a reason are in survivors.txt, next to this file: "path: line: change | reason".
"""

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import coverage

ROOT = Path(__file__).parents[1]
REASONS = Path(__file__).with_name("survivors.txt")
TESTS = {  # what runs for each package: the files named test_*.py
    "cli": "bad_input commands datasets evaluate features figure hostile init "
    "moved_data progress "
    "python report results run sample selection settings start_from table text verify "
    "words",
    "datasets": (
        "columns datasets files grid hostile moved_data progress python settings"
    ),
    # not what processes run
    "execution": "bad_input cluster evaluate execution files pretraining progress "
    "resume run start_from "
    "verify",
    "grid": "bad_input grid hostile names settings",
    "machines": "auto_encoder deep evaluate features golden gradients likelihood "
    "machines products recorders "
    "sample sklearn",
    "report": (
        "bad_input cells evaluate features figure pictures plot report selection words"
    ),
    "results": "bad_input cells evaluate figure files golden machines pretraining "
    "python resume results run "
    "selection start_from statistics store table verify",
    "statistics": (
        "bad_input cells evaluate golden python report selection statistics table"
    ),
    "trial": "auto_encoder bad_input deep early_stopping execution golden gradients "
    "pretraining recorders resume run start_from training",
}
SWAPS = [
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn), (ast.Is, ast.IsNot),
    (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.BitAnd, ast.BitOr), (ast.And, ast.Or),
]  # fmt: skip
OTHER = {one: two for pair in SWAPS for one, two in (pair, pair[::-1])} | {
    ast.FloorDiv: ast.Div
}
NAMES = [
    "max min",
    "argmax argmin",
    "idxmax idxmin",
    "any all",
    "floor ceil",
    "mean median",
    "head tail",
]
RENAMED = {
    one: two for pair in map(str.split, NAMES) for one, two in (pair, pair[::-1])
}


class Mutation(NamedTuple):
    """One error: where it stands, its line, and the text before and after."""

    path: str
    line: int
    whole: str
    start: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """How survivors.txt names it."""
        change = f"{' '.join(self.before.split())} -> {' '.join(self.after.split())}"
        return f"{self.path}: {self.whole}: {change}"


def changed(node: ast.AST) -> Iterator[ast.AST | str]:
    """Yield what may stand in place of a node."""
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in OTHER:
            yield ast.Compare(left, [OTHER[type(op)]()], [right])
        case ast.BinOp(left, op, right) if type(op) in OTHER:
            yield ast.BinOp(left, OTHER[type(op)](), right)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(OTHER[type(op)](), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Attribute(value, str(name)) if name in RENAMED:
            yield ast.Attribute(value, RENAMED[name])
        case ast.Name(name) if name in RENAMED:
            yield ast.Name(RENAMED[name])
        case ast.Expr(ast.Call()):
            yield "pass"
        case ast.Call(
            ast.Name("min" | "max") | ast.Attribute(_, "minimum" | "maximum"), _, []
        ):
            pass  # the order changes nothing
        case ast.Call(func, [first, second, *more], keywords) if not isinstance(
            second, ast.Starred
        ):
            yield ast.Call(func, [second, first, *more], keywords)
        case ast.Call(func, args, [*keywords, ast.keyword(str(name))]) if (
            name != "strict"
        ):
            yield ast.Call(func, args, keywords)


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file without types, messages, texts, and guards such as
    ``strict=True``.
    """
    yield node
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    skipped = {"annotation", "returns"} | (
        {"decorator_list"} if not isinstance(node, ast.ClassDef) else set()
    )
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if (
                field not in skipped
                and isinstance(child, ast.AST)
                and not isinstance(child, ast.Raise | ast.JoinedStr)
            ):
                yield from nodes(child)


def mutations(package: str) -> list[Mutation]:
    """Return all errors that can be planted in a package."""
    found = []
    for path in sorted((ROOT / "cbm_cli" / package).glob("*.py")):
        text = path.read_text()
        begins = [0]
        for line in text.splitlines(keepends=True):
            begins.append(begins[-1] + len(line.encode()))
        for node in nodes(ast.parse(text)):
            for new in changed(node):
                start, end = (
                    begins[node.lineno - 1] + node.col_offset,
                    begins[node.end_lineno - 1] + node.end_col_offset,
                )
                before = text.encode()[start:end].decode()
                after = new if isinstance(new, str) else f"({ast.unparse(new)})"
                whole = text.splitlines()[node.lineno - 1].strip()
                found.append(
                    Mutation(
                        str(path.relative_to(ROOT)),
                        node.lineno,
                        whole,
                        start,
                        end,
                        before,
                        after,
                    )
                )
    return found


def run(
    copy: Path,
    tests: list[str],
    *options: str,
    limit: float | None = None,
    cover: str = "",
) -> int:
    """Run tests in a copy of the repository; 124 if they take longer than a limit."""
    start = (
        ["-m", "coverage", "run", "--rcfile", cover, "-m", "pytest"]
        if cover
        else ["-m", "pytest"]
    )
    command = [sys.executable, *start, "-q", "-p", "no:cacheprovider", *options, *tests]
    with (copy / "out.txt").open("w") as out:
        running = subprocess.Popen(
            command,
            cwd=copy,
            env={
                **os.environ,
                "PYTHONPATH": str(copy),
                "CBM_DATA_DIR": str(copy / "none"),
            },
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            return running.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, 9)
            return 124


def files_of(package: str) -> list[str]:
    """Return the test files of a package, wherever they are in tests/."""
    return [
        str(next(ROOT.glob(f"tests/*/test_{name}.py")).relative_to(ROOT))
        for name in TESTS[package].split()
    ]


def tests_of(
    package: str, copy: Path, folder: Path
) -> tuple[dict[tuple[str, int], list[str]], dict[str, float]]:
    """Return the tests that reach each line of a package, and the seconds of each
    test.
    """
    data, times = folder / f"{package}.coverage", folder / f"{package}.xml"
    if not times.exists():
        config = copy / "mutations.ini"
        config.write_text(
            f"[run]\nsource = cbm_cli\ndata_file = {data}\ndynamic_context = "
            "test_function\n"
        )
        files = files_of(package)
        if run(copy, files, f"--junitxml={folder / 'running.xml'}", cover=str(config)):
            sys.exit(
                f"the tests of {package} fail before an error is planted: "
                f"{copy / 'out.txt'}"
            )
        (folder / "running.xml").rename(times)
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(times).iter("testcase"):
        name = case.attrib["name"].split("[")[0]
        seconds[f"{case.attrib['classname'].replace('.', '/')}.py::{name}"] += float(
            case.attrib["time"]
        )
    measured, reached = coverage.CoverageData(str(data)), {}
    measured.read()
    for file in measured.measured_files():
        for line, contexts in measured.contexts_by_lineno(file).items():
            named = [one.rpartition(".") for one in contexts if one]
            tests = {
                f"{module.replace('.', '/')}.py::{name}" for module, _, name in named
            } & seconds.keys()
            reached[str(Path(file).relative_to(copy)), line] = sorted(
                tests, key=seconds.__getitem__
            )
    return reached, seconds


def outcome(planted: Mutation, copy: Path, tests: list[str], seconds: float) -> str:
    """Plant an error, run the tests, and take it away again."""
    path = copy / planted.path
    whole = path.read_bytes()

    def write(text: bytes) -> None:
        path.write_bytes(text)
        for compiled in path.parent.glob(
            f"__pycache__/{path.stem}.*"
        ):  # known by size and second only
            compiled.unlink()

    write(whole[: planted.start] + planted.after.encode() + whole[planted.end :])
    try:
        code = run(copy, tests, "-x", limit=60 + 4 * seconds)
    finally:
        write(whole)
    named = [
        line
        for line in (copy / "out.txt").read_text().splitlines()
        if line.startswith(("FAILED", "ERROR"))
    ]
    return (
        "survived"
        if code == 0
        else "too long"
        if code == 124
        else (named or ["stopped"])[0][:120]
    )


def judge(
    package: str,
    count: int,
    seed: int,
    copies: "SimpleQueue[Path]",
    folder: Path,
    workers: int,
) -> None:
    """Plant the errors of a package and print what tests noticed."""
    drawn = random.Random(f"{package} {seed}").sample(
        every := mutations(package), min(count, len(every))
    )
    done = folder / f"{package}.csv"
    known = dict(csv.reader(done.open())) if done.exists() else {}
    first = copies.get()
    reached, seconds = tests_of(package, first, folder)
    copies.put(first)
    whole = files_of(package)

    def one(planted: Mutation) -> str:
        key = f"{planted.path}:{planted.line}:{planted.start}:{planted.after}"
        if key not in known:
            tests = reached.get((planted.path, planted.line)) or whole
            # then all of their files: what a fixture reaches is known of the first test
            # only that used it
            tests = list(
                dict.fromkeys([*tests, *(test.split("::")[0] for test in tests)])
            )
            copy = copies.get()
            known[key] = outcome(planted, copy, tests, sum(seconds.values()))
            copies.put(copy)
            with done.open("a", newline="") as rows:
                csv.writer(rows).writerow([key, known[key]])
        return known[key]

    with ThreadPoolExecutor(workers) as pool:
        outcomes = list(pool.map(one, drawn))
    reasons = (
        dict(line.rsplit(" | ", 1) for line in REASONS.read_text().splitlines())
        if REASONS.exists()
        else {}
    )
    survivors = [
        planted
        for planted, said in zip(drawn, outcomes, strict=True)
        if said == "survived"
    ]
    print(
        (
            f"{package}: {len(drawn) - len(survivors)} of {len(drawn)} noticed "
            f"({len(every):,} possible)"
        ),
        flush=True,
    )
    for planted in survivors:
        print(
            f"    line {planted.line}, {planted.name} | "
            f"{reasons.get(planted.name, 'NO TEST, NO REASON')}"
        )


def main() -> None:
    """Plant errors in packages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "packages", nargs="*", choices=[*TESTS, []], help="all without a name"
    )
    parser.add_argument("--planted", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("mutations"))
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(asked.workers):
        copy = folder / f"copy-{number}"
        shutil.rmtree(copy, ignore_errors=True)
        for name in filter(None, files.split("\0")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
        copies.put(copy)
    for package in asked.packages or TESTS:
        judge(package, asked.planted, asked.seed, copies, folder, asked.workers)


if __name__ == "__main__":
    main()
