"""Which large machines have their right checksum, so that a run need not read them all
again.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from cbm_cli.results.journal import LineHead
from cbm_cli.results.reader import Store


class Check(msgspec.Struct, frozen=True):
    """A file as it was when its content had this SHA-256."""

    digest: str
    size: int
    written: int  # when its content or its status last changed, in nanoseconds


class CheckedMachines:
    """The machines in a results folder that were read and had the right checksum.

    Whoever writes to a file changes the time that its system keeps for this. Damage
    that changes no time is found by ``cbm verify`` and by whatever reads the machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / ".cbm-checked.json"
        self.checks: dict[str, Check] = {}
        try:
            content = self.path.read_bytes()
            self.checks = msgspec.json.decode(content, type=dict[str, Check])
        except (OSError, ValueError):  # then machines are read
            return

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

    def _checks_of(self, store: Store, line: LineHead) -> Mapping[str, Check]:
        checks = {}
        for kind, digest in line.files.items():
            path = store.machine_path(line.run_id, line.trial, kind)
            size, written = -1, -1  # of a file that is missing
            if path.is_file():
                status = path.stat()
                size, written = status.st_size, status.st_ctime_ns
            name = f"{store.experiment}/{path.relative_to(store.folder)}"
            checks[name] = Check(digest=digest, size=size, written=written)
        return checks

    def content(self) -> bytes:
        """Return what the file of checks shall hold."""
        return msgspec.json.encode(self.checks)
