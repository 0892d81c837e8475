"""``cbm ls --watch``: what others see of a run."""

import json
import re
import socket
from pathlib import Path

from cbm_cli.execution.observe import FILE
from tests.builders import GRID, cbm, numbers
from tests.processes import children, listening, start_cbm, until

LONG = GRID.replace("updates: 100", "updates: 1e9").replace("every: 20", "every: 1e8")


def test_a_run_is_watched_while_it_lasts_and_is_not_shown_when_it_was_killed(finished):
    Path("long.yaml").write_text(LONG)
    main = start_cbm("run", "long.yaml", "-o", "out put", "-j", 1, cwd=finished)
    facts = until(lambda: (path := Path("out put", FILE)).exists() and json.loads(path.read_text()), 60)
    assert (facts["trials"], facts["finished"], facts["failed"]) == (8, 0, 0)
    ports = set()
    look = lambda: ports.update(listening([main.pid, *children(main.pid)]))  # noqa: E731
    until(lambda: look() or json.loads(Path("out put", FILE).read_text())["running"], 60)
    assert not ports  # nobody can connect
    first, count, running, *table = cbm("ls", "out put", "--watch").stdout.splitlines()
    main.kill()
    main.wait()
    name = f"process {main.pid} on {socket.gethostname()}"
    assert first.startswith(f"{name} has run for ")
    assert numbers(count)[0][:2] == [0, 8]
    assert re.match(r"  bars-and-stripes 00 CD-1 0.1 trial 0: update [\d,]+", running)
    assert [line.split()[0] for line in table[-2:]] == ["experiment", "bars"]
    killed, *table = cbm("ls", "out put", "--watch").stdout.splitlines()
    assert killed.startswith(f"{name} ended ")
    assert killed.endswith("run long.yaml -o 'out put' -j 1")  # how to go on
    assert [line.split()[0] for line in table] == ["experiment", "bars"]


def test_nothing_of_progress_is_left_behind_by_a_run_that_ends(finished):
    assert not Path("out", FILE).exists()
    free, *_ = cbm("ls", "out", "--watch").stdout.splitlines()
    assert free == "no run is writing here"
