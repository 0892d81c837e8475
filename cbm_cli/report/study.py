"""A study in one ZIP file, to share: page, grid, and manifest, summary and curves of each experiment."""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from cbm_cli.report.page import write_report
from cbm_cli.results import Results
from cbm_cli.results.journal import sealed, unsealed
from cbm_cli.results.manifest import grid_of
from cbm_cli.results.writing import EXPORTS, write_atomically

_DATE = (1980, 1, 1, 0, 0, 0)  # of all members, so that the same results make the same bytes


def write_study(results: Results, experiments: Sequence[str], path: Path) -> list[str]:
    """Write the page of some experiments, or of all, with their tables; return warnings.

    Manifests hold the settings of all cells and the digests of the data; the grid runs them again. There are
    no machines and no rows.
    """
    members: dict[str, bytes] = {}
    grid: dict[str, Any] = {}
    needed = [*(experiments or results.require_experiments())]
    for name in needed:  # and then the experiments that their trials start from
        grid[name] = grid_of(manifest := results.store(name).manifest())
        sources = {cell.get("start_from_experiment") for cell in manifest["cells"]} - {*needed}
        needed += sorted(sources & {*results.experiments()})
    for name in experiments or results.require_experiments():
        store = results.store(name)
        manifest = unsealed((store.folder / "manifest.json").read_bytes())
        manifest["grid_folder"] = ""  # of this computer alone
        members[f"{name}/manifest.json"] = sealed(manifest, indent=1)
        members[f"{name}/summary.csv"] = store.summary().to_csv(index=False, lineterminator="\n").encode()
        for folder in EXPORTS:
            for table in sorted((store.folder / folder).glob("*.csv")):
                members[f"{name}/{folder}/{table.name}"] = table.read_bytes()
    text = yaml.safe_dump({"experiments": grid}, sort_keys=False, allow_unicode=True, default_flow_style=None)
    members["grid.yaml"] = text.encode()
    with TemporaryDirectory() as there:
        warnings = write_report(results, experiments, page := Path(there, "report.html"))
        members["report.html"] = page.read_bytes()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    write_atomically(path, stream.getvalue())
    return warnings
