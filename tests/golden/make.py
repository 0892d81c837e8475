"""Write the golden files again: ``python -m tests.golden.make``, after bumping
KERNEL_VERSION.

The results behind the outputs are made again only if ``results.zip`` is missing.
"""

import shutil
import tempfile
from pathlib import Path

from cbm_cli.results.writer import EXPORTS

from tests.builders import cbm
from tests.golden.cases import CASES, FILE, run_case, write
from tests.golden.outputs import COMMANDS, HERE, OUTPUTS, RESULTS, output_of, unpack
from tests.journals import change_manifest


def main() -> None:
    values = {}
    for name in CASES:
        values |= run_case(name)
    write(values)
    print(
        f"{FILE}: {len(CASES)} cases, {len(values)} arrays, "
        f"{FILE.stat().st_size:,} "
        "bytes"
    )
    if not RESULTS.exists():
        make_results()
    OUTPUTS.mkdir(exist_ok=True)
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            (OUTPUTS / name).write_text(
                output_of(name, unpack(Path(folder))), encoding="utf-8"
            )


def make_results() -> None:
    """Run ``grid.yaml``, and pack the results folder without the places of this
    machine.
    """
    with tempfile.TemporaryDirectory() as name:
        cbm("run", HERE / "grid.yaml", "--output", name, "--jobs", 0)
        for experiment in Path(name).glob("*/"):
            change_manifest(
                experiment, lambda manifest: manifest.update(grid_folder="")
            )
            for exports in EXPORTS:  # no output is made of them
                shutil.rmtree(experiment / exports, ignore_errors=True)
        shutil.make_archive(str(RESULTS.with_suffix("")), "zip", name)


if __name__ == "__main__":
    main()
