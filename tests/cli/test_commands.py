"""The commands and options that a user finds in --help are those of the product, and no
others.
"""

import re

import click
import pytest
from cbm_cli.cli import main

from tests.builders import cbm

OPTIONS = {
    "": "--version --cite",
    "data": "",
    "init": "--paper -o",
    "run": (
        "-o -j --trials --set --dry-run --scheduler --available --no-code --fail-fast"
    ),
    "ls": "--json",
    "best": "--metric --select --json",
    "table": "-f --select --choose --by --rows --columns --metric --statistic --test "
    "--alpha "
    "--correction",
    "plot": "-o --size --select --choose --by --metric --panels --x --xlim --ylim "
    "--log --smooth "
    "--statistic --data --layer --title",
    "report": "-o",
    "evaluate": "--exact --ais --pseudo --select --data --temperatures --runs --rows "
    "--seed -j "
    "--again --json",
    "sample": "-n --given --sampler --steps --seed -o",
    "features": "--data --layer -o",
    "export": "-o",
    "verify": "--sample -j --no-code --data --json",
    "data list": "",
    "data fetch": "",
    "schema": "",
}


def commands(group, path=""):
    """Each command by its words, from a group on."""
    yield path, group
    for name in group.list_commands(None) if isinstance(group, click.Group) else ():
        yield from commands(group.get_command(None, name), f"{path} {name}".strip())


def test_there_are_fourteen_commands():
    assert {name for name, _ in commands(main)} == {*OPTIONS}
    assert len({name.partition(" ")[0] for name in OPTIONS if name}) == 14


def test_a_misspelt_command_is_answered_with_the_one_that_was_meant():
    assert "Did you mean 'table'?" in cbm("tabel", code=2).stderr


@pytest.mark.parametrize(("name", "command"), [*commands(main)])
def test_a_command_has_the_options_of_the_product_and_a_help_of_80_columns(
    name, command
):
    text = command.get_help(click.Context(command, info_name=name, terminal_width=78))
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"(?m)^  .*\.\.\.$", text)
    found = [{*one.opts} for one in command.params if isinstance(one, click.Option)]
    expected = OPTIONS[name].split()
    assert [
        option for option in expected if not any(option in names for names in found)
    ] == []
    assert [names for names in found if not names & {*expected}] == []
