"""Keep finished experiments beside these pages: results folders without their machines.

    python reproduction/keep.py results/ standard-methods-bars moving-average

writes results/EXPERIMENT/ beside this file, with the manifest and the trials in trials.jsonl.gz; the same
results give the same bytes. Runs that were kept before and are not in these results stay, and so do other
trials of the same runs, so that parts of an experiment can be run on several computers. `cbm table`, `plot`,
`figure` and `compare` read this folder as any other.

It also draws the figures of the paper that show one of these experiments, as figure-N.png beside this file:
from what is kept, if that has more trials than these results, else from these results. If what is kept lacks
what a figure shows, such as machines, the picture that was drawn before stays. Then pages.py writes the
pages.
"""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from cbm_cli.paper import FIGURES
from cbm_cli.results import Results, Store
from cbm_cli.results.journal import record_of, sealed
from cbm_cli.results.manifest import common

HERE = Path(__file__).parent
DRAWN = HERE.parent / "docs/reproduction"
MACHINES = ("machine", "best")
Records = dict[tuple[str, Any], dict[str, Any]]


def main() -> None:
    results = Results(Path(sys.argv[1]))
    names = sys.argv[2:] or results.experiments()
    for name in names:
        keep(results.store(name), HERE / "results")
    for number, figure in yaml.safe_load(FIGURES.read_text(encoding="utf-8")).items():
        shown = " ".join(part["plot"] for part in figure["parts"]).split()
        if {*shown} & {name.removesuffix("-short") for name in names}:
            kept = Results(HERE / "results")
            more = any(trials_of(kept, name) > trials_of(results, name) for name in shown)
            draw = [sys.executable, "-m", "cbm_cli.cli", "paper", "figure"]
            where = [str((kept if more else results).folder), str(number), "--size", "page"]
            picture = ["-o", str(DRAWN / f"figure-{number}.png"), "--caption"]
            subprocess.run([*draw, *where, *picture], check=False)  # it says which experiments are missing


def trials_of(results: Results, name: str) -> int:
    """Return the number of finished trials of an experiment; 0 of what is none."""
    return len(results.store(name).summary()) if name in results.experiments() else 0


def keep(store: Store, kept: Path) -> None:
    """Write what is kept of an experiment into a folder, together with what was kept before."""
    folder = kept / store.experiment
    before, now = records_of(Store(folder)), records_of(store)
    bare = {key for key, record in before.items() if "run_id" in record and "curve" not in record}
    runs = {run_id for run_id, _ in now}
    if left := sorted(run_id for run_id, _ in bare - now.keys() if run_id in runs):
        sys.exit(f"{folder}: of {left[0]} trials without curves are kept; run them again, too")
    manifest = merged(folder, store.manifest())
    records = before | now
    order = {cell["run_id"]: place for place, cell in enumerate(manifest["cells"])}
    keys = sorted(
        (key for key in records if key[0] in {"made", *order}), key=lambda key: place_of(key, order)
    )
    folder.mkdir(parents=True, exist_ok=True)
    lines = b"".join(sealed(records[key]) + b"\n" for key in keys)
    Store(folder).journal.packed.write_bytes(gzip.compress(lines, 9, mtime=0))
    (folder / "manifest.json").write_bytes(sealed(manifest, indent=1))
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e3:.0f} kB")


def place_of(key: tuple[str, Any], order: dict[str, int]) -> tuple:
    """Computers first, then each cell with its trials."""
    return (-1, key[1]) if key[0] == "made" else (order[key[0]], key[1])


def records_of(store: Store) -> Records:
    """Return records without machines: of computers, of cells (number -1), and of trials."""
    found: Records = {}
    with store.journal.reading() as (stream, index):
        for (kind, name), line in index.facts.items():
            key = ("made", name) if kind == "made" else (name, -1)
            found[key] = record_of(stream, line, store.journal.path)
        for run_id, lines in index.runs.items():
            for number, line in lines.items():
                record = record_of(stream, line, store.journal.path) | {"files": {}}
                if line.finished:
                    found[run_id, number] = {k: v for k, v in record.items() if k not in MACHINES}
    return found


def merged(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the cells that were kept before, and the most trials that were asked for."""
    cells = {cell["run_id"]: cell for cell in manifest["cells"]}
    settings = dict(zip(cells, manifest["settings"], strict=True))
    if (folder / "manifest.json").exists():
        before = Store(folder).manifest()
        manifest["trials"] = max(manifest["trials"], before["trials"])
        old = {cell["run_id"]: cell for cell in before["cells"]}
        cells = old | cells
        settings = dict(zip(old, before["settings"], strict=True)) | settings
    columns = [{k: v for k, v in cell.items() if k != "run_id"} for cell in cells.values()]
    shared, own = common(columns)
    same, more = common([*settings.values()])
    parts = zip(cells, own, more, strict=True)
    manifest["cells"] = [{"run_id": name, "columns": a, "settings": b} for name, a, b in parts]
    return manifest | {"columns": shared, "settings": same, "grid_folder": "", "machine": {}}


if __name__ == "__main__":
    main()
