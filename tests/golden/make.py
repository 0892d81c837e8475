"""Write the golden files again: ``python -m tests.golden.make``, after bumping KERNEL_VERSION.

The results behind the outputs are made again only if ``results.zip`` is missing.
"""

import tempfile
import zipfile
from pathlib import Path

import msgspec
from cbm_cli.results.journal import Manifest, sealed, unsealed
from cbm_cli.results.writing import EXPORTS

from tests.builders import cbm
from tests.golden.cases import CASES, FILE, run_case, write
from tests.golden.outputs import COMMANDS, HERE, OUTPUTS, RESULTS, output_of, unpack


def main() -> None:
    values = {}
    for name in CASES:
        values |= run_case(name)
    write(values)
    print(f"{FILE}: {len(CASES)} cases, {len(values)} arrays, {FILE.stat().st_size:,} bytes")
    if not RESULTS.exists():
        make_results()
    OUTPUTS.mkdir(exist_ok=True)
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            (OUTPUTS / name).write_text(output_of(name, unpack(Path(folder))), encoding="utf-8")


def make_results() -> None:
    """Run ``grid.yaml``, and pack the results folder without the places of this machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "results")
        cbm("run", HERE / "grid.yaml", "--output", folder, "--jobs", 0)
        for path in folder.glob("*/manifest.json"):
            manifest = unsealed(path.read_bytes(), Manifest)
            manifest = msgspec.structs.replace(manifest, grid_folder="")
            path.write_bytes(sealed(manifest, indent=1))
        with zipfile.ZipFile(RESULTS, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                if path.parent.name in EXPORTS:
                    continue  # no output is made of them
                info = zipfile.ZipInfo(str(path.relative_to(folder)), (2026, 1, 1, 0, 0, 0))
                file.writestr(info, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    main()
