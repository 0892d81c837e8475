"""``cbm completion``: what a shell offers while a user types."""

from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from cbm_cli.cli import main
from cbm_cli.datasets.sources import SOURCES
from tests.builders import cbm


@pytest.fixture(autouse=True)
def folder(finished):
    return Path("out").rename(finished / "results")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("verif", ["verify"]),
        ("run grid.yaml b", ["bars"]),
        ("run grid.yaml --set data.f", ["data.flip="]),
        ("run grid.yaml --set offsets=aa", ["offsets=aa^b", "offsets=aa^b_s"]),
        ("run grid.yaml --set sampler=PT", ["sampler=PT_10", "sampler=PT_20"]),
        ("table results b", ["bars"]),
        ("table results --metric train", ["train_log_likelihood"]),
        ("plot c", ["curves", "critical-difference"]),
        ("plot results curves b", ["bars"]),
        ("plot res", ["res"]),  # a folder, which the shell completes
        ("plot curves --select off", ["offsets=00", "offsets=dd^b_s"]),
        ("best b", ["bars"]),
        ("ls results b", ["bars"]),
        ("evaluate m.npz --data mni", ["mnist"]),
        ("data list mn", ["mnist"]),
        ("data fetch ", [*SOURCES]),
        ("run missing.yaml b", []),
        ("table nowhere --metric x", []),
    ],
)
def test_words_are_completed(words, expected):
    *before, begun = words.split(" ")
    shell = get_completion_class("bash")(main, {}, "cbm", "_CBM_COMPLETE")
    items = shell.get_completions(before, begun)
    assert [item.value for item in items] == expected
    assert {item.type for item in items} <= {"plain" if expected != ["res"] else "dir"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_are_those_of_the_shell(shell):
    assert f"_CBM_COMPLETE={shell}_complete" in cbm("completion", shell).stdout
