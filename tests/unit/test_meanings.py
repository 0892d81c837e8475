"""The list of errors with a meaning, which the nightly plants, fits the package."""

import ast

import pytest
import yaml

FIELDS = {"package", "file", "old", "new", "what", "noticed_by", "reason"}


@pytest.fixture
def meanings(clone):
    return yaml.safe_load((clone / "benchmarks/meanings.yaml").read_text("utf-8"))


def test_an_error_replaces_text_that_is_once_in_its_file(clone, meanings):
    problems = []
    for meaning in meanings:
        text = (clone / meaning["file"]).read_text("utf-8")
        times = text.count(meaning["old"])
        if times != 1:
            problems.append(f"{meaning['file']}, {times} times: {meaning['old']}")
        elif meaning["file"].endswith(".py"):
            ast.parse(text.replace(meaning["old"], meaning["new"]))
    assert problems == []


def test_an_error_names_a_test_that_notices_it_or_why_none_does(clone, meanings):
    for meaning in meanings:
        assert {*meaning} <= FIELDS
        assert "noticed_by" in meaning or "reason" in meaning, meaning["what"]
        if "noticed_by" in meaning:
            file, _, name = meaning["noticed_by"].partition("::")
            (path,) = clone.glob(f"tests/*/{file}")
            assert name in path.read_text("utf-8")


def test_no_two_errors_have_the_same_words(meanings):
    words = [meaning["what"] for meaning in meanings]
    assert len({*words}) == len(words)
