"""Offset schemes: every spelling of every scheme reads as the same numbers and prints one way."""

from itertools import product

import pytest

from cbm_cli import reference as ref
from cbm_cli.errors import CbmError
from cbm_cli.grid import Scheme
from cbm_cli.grid.names import LETTERS

PAIRS = ["".join(pair) for pair in product("0dmahr", repeat=2)]
MARKS = [(before, sliding) for before in (True, False) for sliding in (True, False)]


@pytest.mark.parametrize("letters", [*PAIRS, "000", "ddd", "0dmahr"])
@pytest.mark.parametrize(("before", "sliding"), MARKS)
def test_both_orders_of_the_marks_read_as_the_same_scheme(letters, before, sliding):
    order, average = "^b" if before else "^l", "_s" if sliding else ""
    expected = Scheme(letters, before, sliding)
    assert Scheme.parse(letters + order + average) == expected
    assert Scheme.parse(letters + average + order) == expected
    if before:
        assert Scheme.parse(letters + average) == expected


@pytest.mark.parametrize("letters", PAIRS)
@pytest.mark.parametrize(("before", "sliding"), MARKS)
def test_every_printed_form_names_one_scheme(letters, before, sliding):
    scheme = Scheme(letters, before, sliding)
    latex = scheme.latex().replace(r"\mathit", "").replace("{", "").replace("}", "")
    unicode = scheme.unicode().replace("ᵇ", "^b").replace("ˡ", "^l").replace("ₛ", "_s")
    assert [Scheme.parse(text) for text in (str(scheme), latex, unicode)] == [scheme] * 3


@pytest.mark.parametrize(
    ("spelling", "canonical", "latex", "unicode"),
    [
        ("dd_s^b", "dd^b_s", "dd^{b}_{s}", "ddᵇₛ"),
        (" dd^l_s ", "dd^l_s", "dd^{l}_{s}", "ddˡₛ"),
        ("aa", "aa^b", "aa^{b}", "aaᵇ"),
        ("00^b", "00", r"\mathit{00}", "00"),
        ("d0", "d0", r"\mathit{d0}", "d0"),
        ("00^l", "00^l", "00^{l}", "00ˡ"),
        ("ddd_s", "ddd^b_s", "ddd^{b}_{s}", "dddᵇₛ"),
    ],
)
def test_scheme_prints_as_the_paper_writes_it(spelling, canonical, latex, unicode):
    scheme = Scheme.parse(spelling)
    assert (str(scheme), scheme.latex(), scheme.unicode()) == (canonical, latex, unicode)


def test_letters_weigh_data_mean_model_mean_half_and_noise():
    shares = {
        letter: (data, model, half / 2, noise) for letter, (data, model, half, noise) in LETTERS.items()
    }
    assert shares == ref.LETTERS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ddbs", "did you mean dd^b_s?"),
        ("ddls", "did you mean dd^l_s?"),
        ("aab", "did you mean aa^b?"),
        ("dds", "did you mean dd^b_s?"),
        ("dx", "unknown letters x"),
        ("DD^b", "unknown letters D"),
        ("dd^b^l", "cannot be read"),
        ("dd^b^b", "cannot be read"),
        ("dd_s_s", "cannot be read"),
        ("dd^x", "one letter a layer"),
        ("dd _s", "cannot be read"),
        ("^b", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_is_no_scheme_is_refused_with_a_remedy(text, told):
    with pytest.raises(CbmError) as caught:
        Scheme.parse(text)
    assert repr(text) in str(caught.value)
    assert told in str(caught.value)
