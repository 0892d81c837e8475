"""Write the golden files anew: ``python -m tests.golden.make``, after bumping KERNEL_VERSION."""

import tempfile
from pathlib import Path

from tests.golden.cases import CASES, FILE, LONG, SHORT, run_case, values_of, write
from tests.golden.outputs import COMMANDS, OUTPUTS, output_of, unpack


def main() -> None:
    """Run all cases and commands, and write what they come to."""
    values = {}
    for name in CASES:
        for updates in (SHORT, LONG):
            values |= values_of(name, updates, run_case(name, updates))
    write(values)
    print(f"{FILE}: {len(CASES)} cases, {len(values)} arrays, {FILE.stat().st_size:,} bytes")
    OUTPUTS.mkdir(exist_ok=True)
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            (OUTPUTS / name).write_text(output_of(name, unpack(Path(folder))), encoding="utf-8")
    print(f"{OUTPUTS}: {len(COMMANDS)} outputs")


if __name__ == "__main__":
    main()
