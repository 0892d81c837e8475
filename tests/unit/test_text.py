"""Texts that every command writes."""

import json
import math

import numpy as np
import pytest
from cbm_cli.text import did_you_mean, valid_json


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_valid_whatever_the_numbers(indent):
    scalars = [np.float32("nan"), np.int64(3), np.bool_(True)]
    given = {
        "text": "NaN\x9b\x7f\u202e ±\n",
        "scalars": scalars,
        "list": [math.inf, (math.nan, 2)],
    }
    text = valid_json(given | {"array": np.array([[1.0, np.nan]])}, indent)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "text": "NaN\x9b\x7f\u202e ±\n",
        "scalars": [None, 3, True],
        "list": [None, [None, 2]],
        "array": [[1.0, None]],
    }
    assert "±" in text
    assert not {"\x9b", "\x7f", "\u202e"} & {*text}


def test_a_name_is_found_by_its_beginning_letters_and_in_other_capitals():
    known = ["learning_rate", "Survey", "bars"]
    for word, meant in (
        ("SURVEY", "Survey"),
        ("survye", "Survey"),
        ("lr", "learning_rate"),
    ):
        assert did_you_mean(word, known) == f"; did you mean {meant}?"
    assert did_you_mean("x", known) == "; there are learning_rate, Survey, bars"
