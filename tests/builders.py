"""Grids, files of rows, and the command line as a function; what errors and answers
say.
"""

import csv
import hashlib
import io
import json
import re
import struct
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import cbm_cli
import click
import jsonschema
import numpy as np
import pytest
import yaml
from cbm_cli.cli import main
from cbm_cli.cli.output import Complaint
from cbm_cli.errors import CbmError
from cbm_cli.grid.schema import json_schema
from click.testing import CliRunner
from scipy.io import savemat

PACKAGE = Path(cbm_cli.__file__).parent
PAPER = PACKAGE / "grid" / "paper.yaml"
GRID = """
defaults: {trials: 2, seed: 5}
experiments:
  bars:
    data: {name: bars-and-stripes, size: 2}
    model: {kind: rbm, hidden: 3}
    offsets: [00, dd^b_s]
    sampler: [CD-1, PT_4]
    learning_rate: 0.1
    updates: 100
    batch: full
    evaluate: {method: exact, every: 20}
    table: {scale: total}
"""

MACHINES = {  # what a grid of each kind of machine needs, too
    "rbm": {"model": "{kind: rbm, hidden: 4}", "offsets": "dd^b", "sampler": "PCD-1"},
    "dbm": {
        "model": "{kind: dbm, hidden: [6, 5]}",
        "offsets": "ddd^b_s",
        "sampler": "PCD-1",
    },
    "auto-encoder": {
        "model": "{kind: auto-encoder, hidden: half}",
        "offsets": "dd^b_s",
    },
}


def grid_text(kind, **fields):
    """Return a grid of one machine with some fields; a field that is None is left
    out.
    """
    plain = {
        "data": "{name: shifting-bar, size: 9, bar: 1}",
        "learning_rate": "0.1",
        "epochs": "3",
    }
    lines = plain | MACHINES[kind] | fields
    body = "".join(
        f"    {name}: {text}\n" for name, text in lines.items() if text is not None
    )
    return f"experiments:\n  toy:\n{body}"


VALIDATOR = jsonschema.Draft202012Validator(json_schema())

USAGE, FAILURE = click.ClickException.show, Complaint.show


def cbm(*arguments, code=0):
    """Run a command and return click's result; fail unless it exits with ``code``."""
    told = []

    def keeping(show):
        return lambda self, *file: told.append(self) or show(self, *file)

    with (
        patch.object(click.ClickException, "show", keeping(USAGE)),
        patch.object(Complaint, "show", keeping(FAILURE)),
    ):
        result = CliRunner().invoke(main, [*map(str, arguments)])
    result.error = told[0].__context__ if told else None  # as the package raised it
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        result.exception
    )
    return result


def run_grid(text, *words, folder=".", output="results"):
    """Run a grid that is written into a folder; return the folder of its results
    there.
    """
    (grid := Path(folder, "grid.yaml")).write_text(text)
    cbm("run", grid, *words, "-o", Path(folder, output), "-j", 0)
    return Path(folder, output)


def dry(*words):
    """Counts of a dry run of grid.yaml: trials, finished before, to run, and of these
    begun.
    """
    return numbers(cbm("run", "grid.yaml", "--dry-run", *words).stdout)[0]


SAID = re.compile(r"(?:[^ ]*\.ya?ml:(\d+)|(.+?))(?:: ([\w.<]+))?: ")


def problems_of(error):
    """Return (place, field) of each problem in a CbmError, or in what `cbm` returned.

    The place in a grid is its line, else the text before the first colon: a file or an
    option.
    """
    error = getattr(error, "error", error)
    said = [SAID.match(line) for line in str(error).split("\n")]
    return [(found[1] or found[2], found[3] or "") for found in said if found] or [
        ("", "")
    ]


def numbers(text):
    """Return the whole numbers of each line: what a note counts, whatever its words
    are.
    """
    found = [
        re.findall(r"(?<![\w.])\d[\d,]*(?![\w.])", line) for line in text.splitlines()
    ]
    return [[int(one.replace(",", "")) for one in line] for line in found]


def pairs(fields):
    """Return ``sampler: CD-1; chains: 5`` as a dictionary; a field without a value is
    None.
    """
    parts = (field.partition(":") for field in fields.split("; "))
    return {name: text.strip() or None for name, _, text in parts}


def mistakes(table):
    """Return bad grids and their complaints, from lines such as ``rbm chains 1 = @0 |
    [2, @0]``.

    That is a kind of machine, the field of the complaint (``-``: none), and words that
    it names; then values of the field, each of which is wrong at ``@``, or else the
    experiment as a whole. ``;`` divides more fields, and ``!`` begins a line with a
    field of its own. ``*`` behind a field: the schema accepts the grid.
    """
    found = []
    for line in table.strip().splitlines():
        told, _, values = line.partition(" = ")
        machine, field, *named = told.split()
        accepted, field = field[-1] == "*", field.rstrip("*")
        for value in values.split(" | "):
            given = (
                value[1:] if value[0] == "!" else f"{field.partition('.')[0]}: {value}"
            )
            fields = pairs(given)
            fields |= {
                name[1:]: None for name in fields if name[0] == "@"
            }  # stands in its place
            before, mark, after = grid_text(machine, **fields).partition("@")
            line_number = f"{before.count(chr(10)) + 1}" if mark else "2"
            place = line_number, f"toy.{field}".removesuffix(".-")
            identity = f"{machine} {field} {value}"
            found.append(
                pytest.param(before + after, place, accepted, named, id=identity)
            )
    return found


def check_mistake(error, text, place, accepted, named):
    """Check place, field and words of a complaint of `mistakes`, and the schema on the
    grid.
    """
    assert problems_of(error) == [place]
    assert {*named} <= {*re.split(r"[\s,;:?(){}'\[\]]+", str(error))}
    with suppress(yaml.YAMLError):  # what YAML does not read, editors do not
        assert VALIDATOR.is_valid(yaml.safe_load(text)) == accepted


def refusal(function, *arguments, **options):
    """Return the error that a call of the package raises for what it is given."""
    with pytest.raises(CbmError) as raised:
        function(*arguments, **options)
    return raised.value


def holds(text, values):
    """Whether a text has all of these values, separated by |, whatever is said around
    them.
    """
    wanted = map(re.escape, filter(None, values.split("|")))
    return all(re.search(rf"(?<!\w){value}(?!\w)", str(text)) for value in wanted)


def files(folder, *suffixes):
    found = [
        path for path in sorted(Path(folder).rglob("*")) if path.suffix in suffixes
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def summary(folder, experiment="bars"):
    with open(Path(folder) / experiment / "summary.csv", newline="") as stream:
        return list(csv.DictReader(stream))


def evaluate_file(*arguments, code=0):
    """Run ``cbm evaluate m.npz`` on rows.npy; return what it prints, or its answer with
    --json.
    """
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", *arguments, code=code)
    if code:
        return result.stderr
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def sha256(content):
    """Return the checksum of content as data sets list it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def idx(array):
    """Content of an IDX file of bytes."""
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.tobytes()


def lines(rows, separator=",", end="\n"):
    """Content of a text file of numbers."""
    return "".join(
        separator.join(map(str, row)) + end for row in rows.tolist()
    ).encode()


def arrays(*alone, **named):
    """Content of an NPY file of one array, or of an NPZ file of named arrays."""
    stream = io.BytesIO()
    np.save(stream, *alone) if alone else np.savez(stream, **named)
    return stream.getvalue()


def mat(version="5", compressed=True, **named):
    """Content of a MAT file of named arrays."""
    stream = io.BytesIO()
    savemat(stream, named, format=version, do_compression=compressed and version == "5")
    return stream.getvalue()
