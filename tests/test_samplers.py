"""Samplers: names to numbers and back."""

import pytest

from cbm_cli.errors import CbmError
from cbm_cli.grid import Sampler


@pytest.mark.parametrize(
    ("text", "sampler", "canonical", "latex", "unicode"),
    [
        ("CD-1", Sampler(1, 1, restart=True), "CD-1", "CD-1", "CD-1"),
        ("CD-25", Sampler(25, 1, restart=True), "CD-25", "CD-25", "CD-25"),
        ("PCD-1", Sampler(1, 1), "PCD-1", "PCD-1", "PCD-1"),
        (" PCD-02 ", Sampler(2, 1), "PCD-2", "PCD-2", "PCD-2"),
        ("PT_10", Sampler(1, 10), "PT_10", "PT$_{10}$", "PT₁₀"),
        ("PT_20-1", Sampler(1, 20), "PT_20", "PT$_{20}$", "PT₂₀"),
        ("PT_2-5", Sampler(5, 2), "PT_2-5", "PT$_{2}$-5", "PT₂-5"),
        ("exact", Sampler(exact=True), "exact", "exact", "exact"),
    ],
)
def test_sampler_reads_as_numbers_and_prints_one_way(text, sampler, canonical, latex, unicode):
    assert Sampler.parse(text) == sampler
    assert (str(sampler), sampler.latex(), sampler.unicode()) == (canonical, latex, unicode)
    assert Sampler.parse(str(sampler)) == sampler


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("PT_1", "2 or more temperatures; PCD-1 has one"),
        ("PT_1-3", "2 or more temperatures; PCD-3 has one"),
        ("PT_0", "2 or more temperatures"),
        ("CD-0", "k must be 1 or more"),
        ("PT_10-0", "k must be 1 or more"),
        ("CD", "write CD-k, PCD-k, FPCD-k, PT_c, PT_c-k or exact"),
        ("CD1", "is unknown"),
        ("PT-10", "is unknown"),
        ("PT10", "is unknown"),
        ("cd-1", "is unknown"),
        ("CD--1", "is unknown"),
        ("CD-1.5", "is unknown"),
        ("", "is unknown"),
    ],
)
def test_what_is_no_sampler_is_refused_with_a_remedy(text, told):
    with pytest.raises(CbmError) as caught:
        Sampler.parse(text)
    assert repr(text) in str(caught.value)
    assert told in str(caught.value)
