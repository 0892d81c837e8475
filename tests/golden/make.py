"""Write the golden files anew: ``python -m tests.golden.make``, after bumping KERNEL_VERSION."""

from tests.golden.cases import CASES, FILE, LONG, SHORT, run_case, values_of, write


def main() -> None:
    """Run all cases and write what they come to."""
    values = {}
    for name in CASES:
        for updates in (SHORT, LONG):
            values |= values_of(name, updates, run_case(name, updates))
    write(values)
    print(f"{FILE}: {len(CASES)} cases, {len(values)} arrays, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
