"""Grids, result folders and machines that several test files build, and the command line as a function."""

import base64
import csv
import io
import itertools
import json
import random
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import click
import jsonschema
import numpy as np
import pytest
import yaml
from cbm_cli.cli import main
from cbm_cli.datasets.dataset import Dataset
from cbm_cli.datasets.loading import load
from cbm_cli.errors import CbmError
from cbm_cli.execution.plan import Job
from cbm_cli.grid.schema import json_schema
from cbm_cli.grid.settings import Settings, TableSpec
from cbm_cli.reference import states
from cbm_cli.results import Outcome, Progress, read_progress
from cbm_cli.results.journal import FORMAT, Manifest, sealed
from cbm_cli.results.store import stores_in
from cbm_cli.results.writing import EXPORTS, KINDS
from click.testing import CliRunner

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

MACHINES = {  # what a grid of each kind of machine needs beside data, learning rate and length
    "rbm": {"model": "{kind: rbm, hidden: 4}", "offsets": "dd^b", "sampler": "PCD-1"},
    "dbm": {"model": "{kind: dbm, hidden: [6, 5]}", "offsets": "ddd^b_s", "sampler": "PCD-1"},
    "auto-encoder": {"model": "{kind: auto-encoder, hidden: half}", "offsets": "dd^b_s"},
}


def grid_text(kind, **fields):
    """Return a grid of one machine with some fields; a field that is None is left out."""
    plain = {"data": "{name: shifting-bar, size: 9, bar: 1}", "learning_rate": "0.1", "epochs": "3"}
    lines = (
        plain | MACHINES[kind] | {name.replace("__", "."): text for name, text in fields.items()}
    )
    body = "".join(f"    {name}: {text}\n" for name, text in lines.items() if text is not None)
    return f"experiments:\n  toy:\n{body}"


VALIDATOR = jsonschema.Draft202012Validator(json_schema())


SHOW = click.ClickException.show


def cbm(*arguments, code=0):
    """Run a command and return click's result; fail unless it exits with ``code``."""
    told = []
    with patch.object(click.ClickException, "show", lambda self: told.append(self) or SHOW(self)):
        result = CliRunner().invoke(main, [*map(str, arguments)])
    result.error = (
        told[0].__context__ if told else None
    )  # what the command said, as the package raised it
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def run_grid(text, *words, folder=".", output="results"):
    """Run a grid that is written into a folder; return the folder of its results there."""
    (grid := Path(folder, "grid.yaml")).write_text(text)
    cbm("run", grid, *words, "-o", Path(folder, output), "-j", 0)
    return Path(folder, output)


def dry(*words):
    """The first numbers of a dry run of grid.yaml: trials, finished before, to run, and of these begun."""
    return numbers(cbm("run", "grid.yaml", "--dry-run", *words).stdout)[0]


SAID = re.compile(r"(?:[^ ]*\.ya?ml:(\d+)|(.+?))(?:: ([\w.<]+))?: ")


def problems_of(error):
    """Return what is said apart from words: (place, field) of each problem.

    ``error`` is a CbmError, or what `cbm` returned. The place in a grid is its line, else what stands before
    the first colon: a file or an option. Without a field there is ``""``.
    """
    error = getattr(error, "error", error)
    said = [SAID.match(line) for line in str(error).split("\n")]
    return [(found[1] or found[2], found[3] or "") for found in said if found] or [("", "")]


def numbers(text):
    """Return the whole numbers of each line: what a note counts, whatever its words are."""
    found = re.compile(r"(?<![\w.])\d[\d,]*(?![\w.])")
    return [
        [int(one.replace(",", "")) for one in found.findall(line)] for line in text.splitlines()
    ]


def trials_of(folder):
    """All that a run keeps of its trials, without the seconds: content by trial and kind, exports by path."""
    exports = {
        path: content
        for path, content in files(folder, ".csv", ".npz").items()
        if "summary" not in path
    }
    return exports | contents_of(folder)


def contents_of(folder, *experiments, kinds=("curve", "records", "machine", "best")):
    """Curves, records and machines of finished trials, by run-id, number and kind."""
    stores = (
        store
        for store in stores_in(Path(folder))
        if store.experiment in experiments or not experiments
    )
    places = ((store, *key) for store in stores for key in finished_in(store))
    return {
        (store.experiment, run_id, number, kind)[bool(experiments) :]: content
        for store, run_id, number in places
        for kind, content in contents(store, run_id, number).items()
        if kind in kinds
    }


def contents(store, run_id, number):
    """Curve and records of a finished trial by column, and its machines as NPZ files."""
    record = store.record(run_id, number)
    tables = {kind: table for kind in ("curve", "records") if (table := getattr(record, kind))}
    return tables | {kind: store.machine_of(record, kind) for kind in store.machines_in(record)}


def finished_in(store):
    """Run-ids and numbers of the finished trials of an experiment, in the order of their records."""
    return [
        (run_id, number)
        for run_id, lines in store.lines().items()
        for number in lines
        if lines[number].finished
    ]


def lines_of(experiment="out/bars"):
    """The lines of a journal by run-id and number, as they are written."""
    lines = Path(experiment, "trials.jsonl").read_bytes().splitlines(keepends=True)
    records = ((line, json.loads(line)) for line in lines)
    return {(one["run_id"], one["trial"]): line for line, one in records}


def _changed(content, change):
    """Sealed JSON that a function has changed."""
    record = json.loads(content)
    del record["seal"]
    change(record)
    return sealed(record)


def change_record(experiment, key, change):
    """Let a function change the JSON of a trial's record in its place, and seal it anew."""
    path, line = Path(experiment, "trials.jsonl"), lines_of(experiment)[key]
    path.write_bytes(path.read_bytes().replace(line, _changed(line, change) + b"\n"))


def change_manifest(experiment, change):
    """Let a function change the JSON of a manifest, and seal it anew."""
    path = Path(experiment, "manifest.json")
    path.write_bytes(_changed(path.read_bytes(), change))


def made_manifest(cells, trials=2, bounds=None, experiment="e", description="", **table):
    """A manifest of an experiment that was never run."""
    about = {"format": FORMAT, "versions": {}, "experiment": experiment, "description": description}
    about |= {
        "trials": trials,
        "seed": 1,
        "table": TableSpec.model_construct(**table),
        "cells": [*cells],
    }
    about |= {
        "settings": [],
        "others": [],
        "courses": {},
        "upper_bounds": bounds or {},
        "digests": {},
    }
    return Manifest(**about, grid_folder="", grid_commit=None, machine={})


def as_text(content):
    """An NPZ file as it stands in a record."""
    return base64.b64encode(zlib.compress(content)).decode()


def damage(experiment, key):
    """Change a bit in the record of a trial."""
    path, line = Path(experiment, "trials.jsonl"), lines_of(experiment)[key]
    changed = line.replace(b'"row"', b'"r0w"')
    path.write_bytes(path.read_bytes().replace(line, changed))


def forget(experiment, *keys):
    """Remove the records of trials, as if they had never been finished."""
    path = Path(experiment, "trials.jsonl")
    for key in keys:
        path.write_bytes(path.read_bytes().replace(lines_of(experiment)[key], b""))


def pairs(fields):
    """Return ``sampler: CD-1; chains: 5`` as a dictionary; a field without a value is None."""
    parts = (field.partition(":") for field in fields.split("; "))
    return {name: text.strip() or None for name, _, text in parts}


def mistakes(table):
    """Return bad grids and what is told of them, from lines such as ``rbm chains 1 = @0 | [2, @0]``.

    That is a kind of machine, the field of the complaint (``-``: none), and words that it names; then
    values of the field, each of which is wrong at ``@``, or else the experiment as a whole. ``;`` divides
    more fields, and ``!`` begins a line with a field of its own. ``*`` behind a field: it is not the form
    of the value that is wrong, so the schema accepts the grid.
    """
    found = []
    for line in table.strip().splitlines():
        told, _, values = line.partition(" = ")
        machine, field, *named = told.split()
        accepted, field = field[-1] == "*", field.rstrip("*")
        for value in values.split(" | "):
            given = value[1:] if value[0] == "!" else f"{field.partition('.')[0]}: {value}"
            fields = pairs(given)
            fields |= {name[1:]: None for name in fields if name[0] == "@"}  # stands in its place
            before, mark, after = grid_text(machine, **fields).partition("@")
            place = (
                f"{before.count(chr(10)) + 1}" if mark else "2",
                f"toy.{field}".removesuffix(".-"),
            )
            identity = f"{machine} {field} {value}"
            found.append(pytest.param(before + after, place, accepted, named, id=identity))
    return found


def check_mistake(error, text, place, accepted, named):
    """Check place, field and named words of a complaint of `mistakes`, and the schema on the grid."""
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
    """Whether a text has all of these values, separated by |, whatever is said around them."""
    wanted = map(re.escape, filter(None, values.split("|")))
    return all(re.search(rf"(?<!\w){value}(?!\w)", str(text)) for value in wanted)


def files(folder, *suffixes):
    """Content of all files with these endings, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in suffixes
    }


OTHERS = (
    "Thumbs.db",
    ".DS_Store",
    "._trial-000.csv",
    "trial-000 (copy).csv",
    "notes.txt",
    "old.zip",
    "1.json",
)


def throw_in(experiment):
    """Put files and folders of others into every folder of the store; return all of them."""
    root, thrown = Path(experiment), []
    runs = [path for kind in KINDS for path in (root / kind).glob("*_*") if path.is_dir()]
    for folder in (root.parent, root, *(root / kind for kind in (*KINDS, *EXPORTS)), *runs):
        with suppress(OSError):  # folders come and go
            (folder / "@eaDir").mkdir(parents=True, exist_ok=True)
            for path in (*(folder / name for name in OTHERS), folder / "@eaDir" / "trial-001.csv"):
                thrown.append(path)
                if not path.exists():
                    path.write_bytes(b"PK\x03\x04 not yours")
    return thrown


def put_machine(store, run_id, number, arrays):
    """Put another machine in the place of a finished trial's, as if the trial had ended with it."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    change_record(
        store.folder,
        (run_id, number),
        lambda record: record.update(machine=as_text(stream.getvalue())),
    )


def summary(folder, experiment="bars"):
    """Rows of an experiment's summary.csv."""
    with open(Path(folder) / experiment / "summary.csv", newline="") as stream:
        return list(csv.DictReader(stream))


# Machines of several layers: weights, biases and offsets of the centered energy, layer after layer

RBM, TWO, THREE, FOUR = (
    (4, 3),
    (5, 4, 3),
    (4, 3, 3, 2),
    (3, 2, 3, 2, 2),
)  # layers, the visible one first


def layered(layers, seed, scale=1.0):
    """Weights, biases and offsets of every layer, of the centered energy."""
    rng = np.random.default_rng(seed)
    weights = [scale * rng.standard_normal(shape) for shape in itertools.pairwise(layers)]
    return (
        weights,
        [scale * rng.standard_normal(n) for n in layers],
        [rng.random(n) for n in layers],
    )


def layered_energy(machine, layer_states):
    """The centered energy, term by term; of many states where units are rows of their values."""
    weights, biases, offsets = machine
    x = [
        [state - offset for state, offset in zip(*layer, strict=True)]
        for layer in zip(layer_states, offsets, strict=True)
    ]
    energy = 0.0
    for layer, bias in enumerate(biases):
        energy -= sum(x[layer][i] * bias[i] for i in range(len(bias)))
    for layer, W in enumerate(weights):
        n, m = W.shape
        energy -= sum(x[layer][i] * W[i, j] * x[layer + 1][j] for i in range(n) for j in range(m))
    return energy


def machine_file(machine, kind="dbm", **changes):
    """Arrays of a machine file; ``changes`` replace arrays, or remove them where they are None."""
    named = zip(("weights", "biases", "offsets"), machine, strict=True)
    arrays = {f"{name}_{layer}": array for name, of in named for layer, array in enumerate(of)}
    arrays = {"kind": np.array(kind)} | arrays | changes
    return {name: array for name, array in arrays.items() if array is not None}


def file_of(layers, kind, /, seed=1, **changes):
    """Arrays of a machine file of any kind with random parameters, all with offsets; changes as above."""
    rng = np.random.default_rng(seed + 100)
    inner = [*enumerate(layers)][1:-1] if kind == "auto-encoder" else []
    decoder = {f"decoder_biases_{layer}": rng.standard_normal(n) for layer, n in inner}
    decoder |= {f"decoder_offsets_{layer}": rng.random(n) for layer, n in inner}
    arrays = machine_file(layered(layers, seed), kind, **decoder) | changes
    return {name: array for name, array in arrays.items() if array is not None}


# Arrays of a machine of 4-1-1 units whose mean field does not settle: the mean m = 2 p - 1 of both hidden
# units follows m <- tanh(m) and falls like sqrt(3 / 4n), so that p still moves by 2e-4 in round 100
SLOW = {
    "weights_0": np.zeros((4, 1)),
    "weights_1": np.full((1, 1), 4.0),
    "biases_1": np.array([2.0]),
}
SLOW |= {"biases_2": np.array([-2.0]), "offsets_1": np.zeros(1), "offsets_2": np.ones(1)}


def visible_rows(layers):
    """All states of the visible layer."""
    return states(layers[0]).astype(np.uint8)


def all_states(layers):
    """All states of all layers, each a row for each unit."""
    return np.split(states(sum(layers)).T, np.cumsum(layers)[:-1])


def brute_log_likelihoods(machine, layers):
    """log p of every visible state, by the energies of all states of all layers."""
    weight = np.exp(-layered_energy(machine, all_states(layers)))
    return np.log(weight.reshape(-1, 2 ** layers[0]).sum(axis=0) / weight.sum())


def flipped(machine, choice):
    """The machine in which the chosen units (booleans by layer) have the opposite meaning."""
    weights, biases, offsets = machine
    signs = [np.where(chosen, -1.0, 1.0) for chosen in choice]
    return (
        [W * np.outer(*pair) for W, pair in zip(weights, itertools.pairwise(signs), strict=True)],
        [bias * sign for bias, sign in zip(biases, signs, strict=True)],
        [np.where(chosen, 1 - o, o) for chosen, o in zip(choice, offsets, strict=True)],
    )


def evaluate_file(*arguments, code=0):
    """Run ``cbm evaluate m.npz`` on rows.npy; return what it prints, or its answer with --json."""
    result = cbm("evaluate", "m.npz", "--data", "rows.npy", *arguments, code=code)
    if code:
        return result.stderr
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


# Trainings


def coins(units, rows=13):
    """Data of independent units."""
    rng = np.random.default_rng(5)
    train = (rng.random((rows, units)) < rng.random(units)).astype(np.uint8)
    return Dataset("coins", train, train)


def rbm_settings(**changes):
    """Settings of a short training of an RBM on data that a test brings."""
    base = {
        "data": {"name": "mnist"},  # its name; the rows are others
        "model": {"kind": "rbm", "hidden": 3},
        "offsets": "dd^b",
        "sampler": "PCD-1",
        "learning_rate": 0.1,
        "updates": 10,
    }
    return Settings(**base | changes)


def finish_in_pieces(run, store, chance, seed):
    """Run a trial that is stopped again and again and read back from its file; return it and its stops."""
    dice, stops, result = random.Random(seed), [], None
    while not isinstance(result, Outcome):
        result = run(result, lambda: dice.random() < chance)
        if isinstance(result, Progress):
            stops.append((result.stage, result.update))
            store.write_progress("run", 0, result, "course")
            result = read_progress(store.state_path("course", "run", 0))
    return result, stops


FIXED = {"visible": 0, "hidden": 0.3}
# Ways to step, in settings and in the plan of the reference; epochs have 3 batches
STEPS = {
    "momentum": ({"momentum": 0.8}, {"momentum": 0.8}),
    "l1": ({"weight_decay": {"l1": 0.05}}, {"l1": 0.05}),
    "l2": ({"weight_decay": {"l2": 0.2}}, {"l2": 0.2}),
    "momentum and decay": (
        {"momentum": 0.8, "weight_decay": {"l1": 0.03, "l2": 0.1}},
        {"momentum": 0.8, "l1": 0.03, "l2": 0.1},
    ),
    "decaying rate": (
        {"learning_rate": {"start": 0.2, "decay": 0.5, "every": "5 updates"}},
        {"learning_rate": [(k, 0.2 * 0.5 ** (k // 5)) for k in (0, 5, 10)]},
    ),
    "rates in steps": (
        {"learning_rate": {"start": 0.2, "steps": "0.02 from 1 epoch + 0.3 from 3 epochs"}},
        {"learning_rate": [(0, 0.2), (3, 0.02), (9, 0.3)]},
    ),
    "momentum while rates change": (
        {"momentum": 0.5, "learning_rate": {"start": 0.2, "steps": "0.05 from 4 updates"}},
        {"momentum": 0.5, "learning_rate": [(0, 0.2), (4, 0.05)]},
    ),
    "order of the file": ({"shuffle": False}, {"shuffled": False}),
}


def idx(array):
    """Content of an IDX file of bytes."""
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def lines(rows, separator=",", end="\n"):
    """Content of a text file of numbers."""
    return "".join(separator.join(map(str, row)) + end for row in rows.tolist()).encode()


def arrays(*alone, **named):
    """Content of an NPY file of one array, or of an NPZ file of named arrays."""
    stream = io.BytesIO()
    np.save(stream, *alone) if alone else np.savez(stream, **named)
    return stream.getvalue()


def toy_jobs(*kinds, **changes):
    """Jobs of trials of these classes, numbered from 0, on bars and stripes."""
    base = {
        "data": {"name": "bars-and-stripes", "size": 2},
        "model": {"kind": "rbm", "hidden": 2},
        "offsets": "dd^b",
        "sampler": "CD-1",
        "learning_rate": 0.1,
        "updates": 20,
        "batch": "full",
    }
    settings, data = Settings(**base | changes), load("bars-and-stripes", size=2)
    return [Job(kind("test", settings, n, 1), "run", data, ()) for n, kind in enumerate(kinds)]
