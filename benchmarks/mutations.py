"""Plant errors in the package and count those that tests notice; needs the extra
``dev``.

    python benchmarks/mutations.py report statistics --planted 40 --folder mutations/

Changes of operators, constants, arguments, order and branches are drawn from the
sources of each package. The tests of the package run once under coverage. Each error
then runs the tests that reach its line, quickest first, in a copy of the repository.
FOLDER/PACKAGE.csv keeps the outcomes: an interrupted run continues. Errors that survive
for a reason are in survivors.txt, next to this file: "path: line: change | reason".

    python benchmarks/mutations.py --meanings results --folder mutations/

plants errors with a meaning instead, those of meanings.yaml, and runs the test that
each of them names, or else all tests of its package. The exit code is 1 if an error
survives without a reason.
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
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import NamedTuple

import coverage
import msgspec

ROOT = Path(__file__).parents[1]
REASONS = Path(__file__).with_name("survivors.txt")
MEANINGS = Path(__file__).with_name("meanings.yaml")
LIMIT = 900  # seconds for the tests of an error with a meaning; kernels are compiled
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
    "machines": "auto_encoder deep evaluate factorial features golden gradients "
    "likelihood machines products recorders "
    "sample sklearn",
    "report": (
        "bad_input cells evaluate features figure pictures plot report selection words"
    ),
    "results": "bad_input cells evaluate figure files golden machines pretraining "
    "python resume results run "
    "merge recomputed selection start_from statistics store table verify writer",
    "statistics": "bad_input cells evaluate golden python recomputed report selection "
    "statistics table",
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
SURVIVED = "survived"
UNEXPLAINED = "NO TEST, NO REASON"
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
    environment: Mapping[str, str] = MappingProxyType({}),
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
                **environment,
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


def outcome(planted: Mutation, copy: Path, tests: list[str], limit: float) -> str:
    """Plant an error, run the tests, and take it away again."""
    path = copy / planted.path
    whole = path.read_bytes()

    def write(text: bytes) -> None:
        path.write_bytes(text)
        for compiled in path.parent.glob(
            f"__pycache__/{path.stem}.*"
        ):  # known by size and second only
            compiled.unlink()

    environment = {}
    if planted.path.startswith("cbm_cli/kernels/"):  # machine code of one use
        environment["CBM_KERNEL_CACHE"] = str(copy / "kernels")
    write(whole[: planted.start] + planted.after.encode() + whole[planted.end :])
    try:
        code = run(copy, tests, "-x", limit=limit, environment=environment)
    finally:
        write(whole)
        shutil.rmtree(copy / "kernels", ignore_errors=True)
    if code == 0:
        return SURVIVED
    if code == 124:
        return "too long"
    for line in (copy / "out.txt").read_text().splitlines():
        if line.startswith(("FAILED", "ERROR")):
            return line[:120]
    return "stopped"


class Outcomes:
    """Outcomes by key, kept in a file, so that an interrupted run continues."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, str] = {}
        if path.exists():
            with path.open(newline="") as rows:
                self.known = dict(csv.reader(rows))

    def of(self, key: str, find: Callable[[], str]) -> str:
        """Return the outcome of a key, found now if it is not known."""
        if key not in self.known:
            self.known[key] = find()
            with self.path.open("a", newline="") as rows:
                csv.writer(rows).writerow([key, self.known[key]])
        return self.known[key]


def judge(
    package: str,
    count: int,
    seed: int,
    copies: "SimpleQueue[Path]",
    folder: Path,
    workers: int,
) -> None:
    """Plant the errors of a package and print what tests noticed."""
    possible = mutations(package)
    drawn = random.Random(f"{package} {seed}").sample(
        possible, min(count, len(possible))
    )
    known = Outcomes(folder / f"{package}.csv")
    first = copies.get()
    reached, seconds = tests_of(package, first, folder)
    copies.put(first)
    limit = 60 + 4 * sum(seconds.values())

    def plant(planted: Mutation) -> str:
        tests = reached.get((planted.path, planted.line)) or files_of(package)
        # then all of their files: what a fixture reaches is known of the first test
        # only that used it
        tests = [*dict.fromkeys([*tests, *(test.split("::")[0] for test in tests)])]
        copy = copies.get()
        try:
            return outcome(planted, copy, tests, limit)
        finally:
            copies.put(copy)

    def outcome_of(planted: Mutation) -> str:
        key = f"{planted.path}:{planted.line}:{planted.start}:{planted.after}"
        return known.of(key, partial(plant, planted))

    with ThreadPoolExecutor(workers) as pool:
        outcomes = dict(zip(drawn, pool.map(outcome_of, drawn), strict=True))
    reasons = {}
    for line in REASONS.read_text().splitlines():
        name, reason = line.rsplit(" | ", 1)
        reasons[name] = reason
    survivors = [planted for planted in drawn if outcomes[planted] == SURVIVED]
    noticed = f"{len(drawn) - len(survivors)} of {len(drawn)} noticed"
    print(f"{package}: {noticed} ({len(possible):,} possible)", flush=True)
    for planted in survivors:
        reason = reasons.get(planted.name, UNEXPLAINED)
        print(f"    line {planted.line}, {planted.name} | {reason}")


# Errors with a meaning


class Meaning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of meanings.yaml."""

    package: str
    file: str
    old: str  # once in the file
    new: str
    what: str  # the error means
    noticed_by: str = ""  # FILE.py::TEST
    reason: str = ""  # why it may survive

    def planted(self) -> Mutation:
        """Return the error; exit where the file does not hold the text once."""
        text = (ROOT / self.file).read_text()
        if text.count(self.old) != 1:
            sys.exit(
                f"{MEANINGS.name}: {self.file} does not hold once, but "
                f"{text.count(self.old)} times: {self.old!r}"
            )
        before, _, _ = text.partition(self.old)
        start = len(before.encode())
        return Mutation(
            path=self.file,
            line=before.count("\n") + 1,
            whole=self.what,
            start=start,
            end=start + len(self.old.encode()),
            before=self.old,
            after=self.new,
        )

    def tests(self) -> list[str]:
        """Return the test that it names, or else those of its package."""
        if not self.noticed_by:
            return files_of(self.package)
        file, _, name = self.noticed_by.partition("::")
        (path,) = ROOT.glob(f"tests/*/{file}")
        return [f"{path.relative_to(ROOT)}::{name}"]


def meanings_of() -> list[Meaning]:
    """Return the entries of meanings.yaml."""
    return msgspec.yaml.decode(MEANINGS.read_bytes(), type=list[Meaning])


def judge_meanings(
    packages: list[str], copies: "SimpleQueue[Path]", folder: Path, workers: int
) -> int:
    """Plant the errors of packages and print what tests noticed; return the number of
    those that survive without a reason.
    """
    meanings = [meaning for meaning in meanings_of() if meaning.package in packages]
    known = Outcomes(folder / "meanings.csv")
    planted = {meaning.what: meaning.planted() for meaning in meanings}

    def plant(meaning: Meaning) -> str:
        copy = copies.get()
        try:
            return outcome(planted[meaning.what], copy, meaning.tests(), LIMIT)
        finally:
            copies.put(copy)

    def outcome_of(meaning: Meaning) -> str:
        key = " ".join([meaning.file, meaning.what, meaning.noticed_by])
        return known.of(key, partial(plant, meaning))

    unexplained = 0
    for package in packages:
        own = [meaning for meaning in meanings if meaning.package == package]
        with ThreadPoolExecutor(workers) as pool:
            outcomes = dict(zip(own, pool.map(outcome_of, own), strict=True))
        survivors = [meaning for meaning in own if outcomes[meaning] == SURVIVED]
        print(f"{package}: {len(own) - len(survivors)} of {len(own)} noticed")
        for meaning in own:
            words = outcomes[meaning]
            if words == SURVIVED:
                words += f": {meaning.reason or UNEXPLAINED}"
                unexplained += not meaning.reason
            print(f"    {meaning.what} | {words}", flush=True)
    return unexplained


def main() -> None:
    """Plant errors in packages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packages", nargs="*", help="all without a name")
    parser.add_argument(
        "--meanings", action="store_true", help="plant the errors of meanings.yaml"
    )
    parser.add_argument("--planted", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("mutations"))
    asked = parser.parse_args()
    packages = TESTS
    if asked.meanings:
        packages = dict.fromkeys(meaning.package for meaning in meanings_of())
    unknown = {*asked.packages} - {*packages}
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(packages)}")
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
    if asked.meanings:
        chosen = asked.packages or list(packages)
        sys.exit(judge_meanings(chosen, copies, folder, asked.workers) > 0)
    for package in asked.packages or packages:
        judge(package, asked.planted, asked.seed, copies, folder, asked.workers)


if __name__ == "__main__":
    main()
