"""Results of many settings against those of the kernels that the golden files were made
with.
"""

import pytest
from numpy.testing import assert_allclose

from tests.golden import cases, outputs
from tests.golden.cases import CASES

MOVED = "a golden value moved: bump KERNEL_VERSION and run python -m tests.golden.make"


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_as_it_was(name):
    expected = {
        key: it for key, it in cases.read().items() if key.startswith(f"{name}/")
    }
    departed = cases.departure_of_runs(name, expected)
    assert departed is None, f"{MOVED}: {departed}"


@pytest.mark.parametrize("name", outputs.COMMANDS)
def test_results_are_shown_as_they_were(tmp_path, name):
    printed = outputs.output_of(name, outputs.unpack(tmp_path))
    kept = (outputs.OUTPUTS / name).read_text(encoding="utf-8")
    (words, numbers), (same_words, expected) = map(outputs.parted, (printed, kept))
    assert words == same_words, f"an output changed; if this is meant, {cases.REMEDY}"
    # Evaluations are sums in float32; tables are exact but for the last digit of
    # libraries
    limit = 1e-5 if name.startswith("evaluate") else 1e-9
    assert_allclose(numbers, expected, rtol=limit, atol=limit, err_msg=MOVED)
