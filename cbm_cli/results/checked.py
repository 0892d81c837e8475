"""Which large machines have their right checksum, so that a run need not read them all
again.
"""

from contextlib import suppress
from pathlib import Path

import msgspec

from cbm_cli.results.journal import LineHead
from cbm_cli.results.reader import Store


class CheckedMachines:
    """The machines in a results folder that were read and had the right checksum.

    Whoever writes to a file changes the time that its system keeps for this. Damage
    that changes no time is found by ``cbm verify`` and by whatever reads the machine.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / ".cbm-checked.json"
        self.checks: dict[str, str] = {}  # checksum, size and time of files, by name
        with suppress(OSError, ValueError):  # then machines are read
            content = self.path.read_bytes()
            self.checks = msgspec.json.decode(content, type=dict[str, str])

    def damage(self, store: Store, line: LineHead) -> str:
        """Return what `Store.damage` does, without reading files that were not written
        to since they were last read.
        """
        checks = self._checks_of(store, line)
        if all(self.checks.get(name) == check for name, check in checks.items()):
            return ""
        damage = store.damage(line)
        if not damage:
            self.checks |= checks
        return damage

    def note(self, store: Store, line: LineHead) -> None:
        """Note the machines of a line that have just been written."""
        self.checks |= self._checks_of(store, line)

    def _checks_of(self, store: Store, line: LineHead) -> dict[str, str]:
        checks = {}
        for kind, digest in line.files.items():
            path = store.machine_path(line.run_id, line.trial, kind)
            state = "missing"
            if path.is_file():
                status = path.stat()
                state = f"{status.st_size} {status.st_ctime_ns}"
            name = f"{store.experiment}/{path.relative_to(store.folder)}"
            checks[name] = f"{digest} {state}"
        return checks

    def content(self) -> bytes:
        """Return what the file of checks shall hold."""
        return msgspec.json.encode(self.checks)
