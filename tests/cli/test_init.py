"""cbm init: the grids that it writes, and what it does not replace."""

from pathlib import Path
from unittest.mock import Mock

from cbm_cli.grid.read import read_grid

from tests.builders import PAPER, cbm, holds, problems_of

GRID = Path("experiments.yaml")


def test_the_starter_has_the_quickstart_of_the_paper_and_a_next_experiment(here):
    assert holds(cbm("init").stderr, f"{GRID}|cbm run")
    started, whole = read_grid(GRID), read_grid(PAPER)
    assert started.default == whole.default == ("quickstart",)
    assert started.experiments["quickstart"] == whole.experiments["quickstart"]
    head, mark, last = GRID.read_text("utf-8").partition("  # my-first:")
    uncommented = (mark + last).replace("\n  # ", "\n  ").replace(mark, "  my-first:")
    GRID.write_text(head + uncommented, "utf-8")
    first = read_grid(GRID).experiments["my-first"]
    assert (len(first.cells), first.trials) == (4, 10)


def test_the_paper_has_its_grid(here):
    assert "cbm run paper.yaml" in cbm("init", "--paper", "-o", "paper.yaml").stderr
    assert Path("paper.yaml").read_bytes() == PAPER.read_bytes()


def test_init_replaces_no_file(here, monkeypatch):
    with monkeypatch.context() as full_disk:
        full_disk.setattr(
            "os.fsync", Mock(side_effect=OSError(28, "No space left on device"))
        )
        assert "No space left on device" in cbm("init", code=2).stderr
    assert [*here.iterdir()] == []
    GRID.write_text("mine")
    assert problems_of(cbm("init", code=2)) == [(str(GRID), "")]
    assert GRID.read_text() == "mine"
    GRID.unlink()
    GRID.symlink_to("gone")  # a link whose file is missing is also somebody's
    assert problems_of(cbm("init", code=2)) == [(str(GRID), "")]
    assert GRID.is_symlink()
