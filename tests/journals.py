"""What experiments keep of their trials: read, changed, damaged and made by hand."""

import base64
import io
import json
import zlib
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from cbm_cli.grid.settings import Data, Pretraining, Settings, TableSpec
from cbm_cli.results import Results
from cbm_cli.results.journal import FORMAT, Manifest, Run, sealed
from cbm_cli.results.writer import EXPORTS, FOLDERS, locked

from tests.builders import files


def trials_of(folder):
    """All that a run keeps of its trials, without the seconds."""
    exports = files(folder, ".csv", ".npz").items()
    kept = {path: content for path, content in exports if "summary" not in path}
    return kept | contents_of(folder)


def stores_in(folder):
    """The experiments of a results folder; none before there is one."""
    if not Path(folder).is_dir():
        return []
    results = Results(Path(folder))
    return [results.store(name) for name in results.experiments()]


def contents_of(folder, *experiments, kinds=("curve", "records", "machine", "best")):
    """Curves, records and machines of finished trials, by run-id, number and kind."""
    stores = [
        it
        for it in stores_in(folder)
        if it.experiment in experiments or not experiments
    ]
    places = ((store, *key) for store in stores for key in finished_in(store))
    return {
        (store.experiment, run_id, number, kind)[bool(experiments) :]: content
        for store, run_id, number in places
        for kind, content in contents(store, run_id, number).items()
        if kind in kinds
    }


def contents(store, run_id, number):
    """Curve and records of a finished trial by column, and its machines as NPZ
    files.
    """
    record = store.line(run_id, number)
    tables = {
        kind: table for kind in ("curve", "records") if (table := getattr(record, kind))
    }
    return tables | {
        kind: store.machine_of(record, kind) for kind in store.machines_in(record)
    }


@contextmanager
def writing(experiment):
    """Yield the writer of an experiment's folder; at the end all is on disk."""
    folder = Path(experiment)
    with locked(folder.parent) as lock:
        writer = lock.writer(folder.name)
        yield writer
        writer.journal.flush()


def finished_in(store):
    """Run-ids and numbers of finished trials, in the order of their records."""
    heads = [head for lines in store.lines().values() for head in lines.values()]
    return [(head.run_id, head.trial) for head in heads if head.finished]


def lines_of(experiment="out/bars"):
    """The lines of a journal by run-id and number, as they are written."""
    lines = Path(experiment, "trials.jsonl").read_bytes().splitlines(keepends=True)
    records = ((line, json.loads(line)) for line in lines)
    return {(one["run_id"], one["trial"]): line for line, one in records}


def _changed(content, change):
    record = json.loads(content)
    del record["seal"]
    change(record)
    return sealed(record)


def change_record(experiment, key, change):
    """Let a function change a trial's record in its place, and seal it again."""
    path, line = Path(experiment, "trials.jsonl"), lines_of(experiment)[key]
    path.write_bytes(path.read_bytes().replace(line, _changed(line, change) + b"\n"))


def change_manifest(experiment, change):
    """Let a function change a manifest, and seal it again."""
    path = Path(experiment, "manifest.json")
    path.write_bytes(_changed(path.read_bytes(), change))


PLAIN = Settings(
    data={"name": "mnist"},
    model={"kind": "rbm", "hidden": 4},
    offsets="00",
    sampler="CD-1",
    learning_rate=0.1,
    updates=100,
)


class MadeRun(Run, frozen=True, dict=True):
    """A run whose columns a test makes up."""

    columns: dict = msgspec.field(default_factory=dict)

    @cached_property
    def row(self):
        return {"experiment": self.experiment, **self.columns}


def made_runs(cells):
    """Runs of mappings of columns and run-ids; all get the columns of any."""
    names = dict.fromkeys(name for cell in cells for name in cell if name != "run_id")
    runs = []
    for cell in cells:
        settings = PLAIN
        if "data" in cell:
            data = Data.model_construct(**dict(PLAIN.data) | {"name": cell["data"]})
            settings = settings.model_copy(update={"data": data})
        if "epochs" in cell:
            settings = settings.model_copy(update={"epochs": cell["epochs"]})
        if "pretraining_epochs" in cell:
            before = Pretraining(epochs=cell["pretraining_epochs"])
            settings = settings.model_copy(update={"pretraining": before})
        columns = {name: cell.get(name) for name in names}
        runs.append(MadeRun(cell["run_id"], settings, columns=columns))
    return runs


def made_manifest(
    cells, trials=2, bounds=None, experiment="e", description="", **table
):
    about = {
        "format": FORMAT,
        "versions": {},
        "experiment": experiment,
        "description": description,
    }
    about |= {"trials": trials, "seed": 1, "table": TableSpec.model_construct(**table)}
    about |= {
        "cells": made_runs(cells),
        "others": [],
        "upper_bounds": bounds or {},
    }
    about |= {"courses": {}, "digests": {}, "machine": {}, "grid_folder": ""}
    return Manifest(**about)


def as_text(content):
    """An NPZ file as text of a record."""
    return base64.b64encode(zlib.compress(content)).decode()


def damage(experiment, key):
    """Change a bit in the record of a trial."""
    path, line = Path(experiment, "trials.jsonl"), lines_of(experiment)[key]
    changed = line.replace(b'"row"', b'"r0w"')
    path.write_bytes(path.read_bytes().replace(line, changed))


def forget(experiment, *keys):
    path = Path(experiment, "trials.jsonl")
    for key in keys:
        path.write_bytes(path.read_bytes().replace(lines_of(experiment)[key], b""))


OTHERS = [
    "Thumbs.db",
    ".DS_Store",
    "._trial-000.csv",
    "trial-000 (copy).csv",
    "notes.txt",
]
OTHERS += ["old.zip", "1.json"]


def throw_in(experiment):
    """Put files and folders of others into every folder of the store; return all of
    them.
    """
    root, thrown = Path(experiment), []
    runs = [
        path for kind in FOLDERS for path in (root / kind).glob("*_*") if path.is_dir()
    ]
    for folder in (
        root.parent,
        root,
        *(root / kind for kind in (*FOLDERS, *EXPORTS)),
        *runs,
    ):
        with suppress(OSError):  # folders come and go
            (folder / "@eaDir").mkdir(parents=True, exist_ok=True)
            for path in (
                *(folder / name for name in OTHERS),
                folder / "@eaDir" / "trial-001.csv",
            ):
                thrown.append(path)
                if not path.exists():
                    path.write_bytes(b"PK\x03\x04 not yours")
    return thrown


def put_machine(store, run_id, number, arrays):
    """Let a finished trial have ended with another machine."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    machine = as_text(stream.getvalue())
    change_record(
        store.folder, (run_id, number), lambda record: record.update(machine=machine)
    )
