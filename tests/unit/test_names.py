"""Offset schemes and samplers: every spelling reads as the same numbers and prints one
way.
"""

import string
from contextlib import suppress

import pytest
from cbm_cli.errors import CbmError
from cbm_cli.grid.names import Sampler, Scheme
from cbm_cli.letters import LETTERS

from tests.builders import refusal


@pytest.mark.parametrize("letters", ["00", "dm", "000", "0dmahr"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("sliding", [True, False])
def test_every_spelling_and_every_printed_form_name_one_scheme(
    letters, before, sliding
):
    order, average = "^b" if before else "^l", "_s" if sliding else ""
    expected = Scheme(letters, before, sliding)
    latex = expected.latex().replace(r"\mathit", "").replace("{", "").replace("}", "")
    unicode = (
        expected.unicode().replace("ᵇ", "^b").replace("ˡ", "^l").replace("ₛ", "_s")
    )
    texts = [
        letters + order + average,
        letters + average + order,
        str(expected),
        latex,
        unicode,
    ]
    texts += [letters + average] if before else []
    assert {Scheme.parse(text) for text in texts} == {expected}


def test_scheme_prints_as_the_paper_writes_it():
    for spelling, canonical, latex, unicode in (
        (" dd_s^l ", "dd^l_s", "dd^{l}_{s}", "ddˡₛ"),
        ("00^l", "00^l", "00^{l}", "00ˡ"),
        ("0dh^b", "0dh", r"\mathit{0dh}", "0dh"),
    ):
        scheme = Scheme.parse(spelling)
        assert (str(scheme), scheme.latex(), scheme.unicode()) == (
            canonical,
            latex,
            unicode,
        )


def test_the_letters_of_schemes_are_those_of_the_reference():
    allowed = set()
    for letter in string.printable:
        with suppress(CbmError):
            allowed |= set(Scheme.parse(f"0{letter}0").letters)
    assert allowed == set(LETTERS)


def test_sampler_reads_as_numbers_and_prints_one_way():
    for text, sampler, canonical, latex, unicode in (
        ("CD-25", Sampler(25, 1, restart=True), "CD-25", "CD-25", "CD-25"),
        ("PT_20-1", Sampler(1, 20), "PT_20", "PT$_{20}$", "PT₂₀"),
        ("PT_2-5", Sampler(5, 2), "PT_2-5", "PT$_{2}$-5", "PT₂-5"),
        ("exact", Sampler(exact=True), "exact", "exact", "exact"),
    ):
        assert (str(sampler), sampler.latex(), sampler.unicode()) == (
            canonical,
            latex,
            unicode,
        )
        assert Sampler.parse(text) == Sampler.parse(canonical) == sampler


def test_other_text_is_refused_with_what_was_meant():
    for kind, texts, named in (
        (
            Scheme,
            ["ddbs", "dds", "dd^b^l", "dd^b^b", "dd_s_s", "dd^x", "dd _s", "^b", ""],
            "0 none, d data mean",
        ),
        (Sampler, ["PT_0", "PT_1", "PT_1-3"], " 2 "),
        (Sampler, ["CD-0", "PT_10-0"], " 1 "),
        (
            Sampler,
            ["CD", "PT-10", "cd-1", "CD--1", "CD-1.5", ""],
            "CD-k, PCD-k, PT_c, PT_c-k",
        ),
    ):
        for text in texts:
            error = refusal(kind.parse, text)
            assert repr(text) in str(error)
            assert named in str(error)
