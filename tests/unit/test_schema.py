"""The JSON schema of grids agrees with the reader: both accept and refuse the same."""

import json

import pytest
import yaml
from cbm_cli.grid.read import read_grid
from cbm_cli.grid.schema import json_schema

from tests.builders import PAPER, VALIDATOR, cbm, grid_text, refusal


def test_command_prints_the_schema():
    assert json.loads(cbm("schema").stdout) == json_schema()
    VALIDATOR.check_schema(json_schema())


def test_experiments_of_the_paper_are_accepted_and_name_their_schema():
    text = PAPER.read_text("utf-8")
    VALIDATOR.validate(yaml.safe_load(text))
    assert "# yaml-language-server: $schema=" in text


@pytest.mark.parametrize(
    "text",
    ["[a]", "experiments: {}", "experiments: {a/b: {}}", grid_text("rbm", data="{path: {}}")],
)
def test_schema_refuses_files_of_another_shape(text):
    refusal(read_grid, "grid.yaml", text=text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))
