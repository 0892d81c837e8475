"""Keep the summaries of finished experiments beside these pages.

    python docs/reproduction/keep.py results/ standard-methods-bars moving-average

writes results/EXPERIMENT.csv.gz and results/SHA256SUMS; the same summaries give the same bytes. Then
`cbm compare docs/reproduction/results` compares them with the paper.
"""

import gzip
import hashlib
import sys
from pathlib import Path

from cbm_cli.results import Results

KEPT = Path(__file__).parent / "results"


def main() -> None:
    results = Results(Path(sys.argv[1]))
    KEPT.mkdir(exist_ok=True)
    for name in sys.argv[2:] or results.experiments():
        store = results.store(name)
        store.summary()  # written anew if it is out of date
        path = KEPT / f"{name}.csv.gz"
        path.write_bytes(gzip.compress((store.folder / "summary.csv").read_bytes(), 9, mtime=0))
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")
    sums = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(KEPT.glob("*.gz"))
    )
    (KEPT / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
