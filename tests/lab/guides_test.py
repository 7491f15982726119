"""The figures of the first examples of the guides."""

import pytest

from lab.defaults import guides


@pytest.mark.parametrize("page", guides.PAGES)
def test_a_rate_and_a_sampler_replace_those_of_a_page(page):
    own = guides.code_of(page, seed=0)
    changed = guides.code_of(page, seed=0, rate=0.25, sampler="tflo.samplers.OtherSampler(3)")
    assert "LazyAdam(0.25)" in changed and "OtherSampler(3)" in changed
    assert "0.25" not in own and "OtherSampler" not in own
    assert '"uniform"' not in changed and "UniformSampler" not in changed


def test_the_table_compares_the_means_of_a_page_with_the_best_of_the_grid():
    runs = [
        {"page": "saving", "rate": rate, "sampler": sampler, "p1": p1}
        for rate, sampler, values in [
            (None, None, [40.0, 42.0]),
            (0.01, "tflo.samplers.A(1)", [50.0, 50.0]),
            (0.1, "tflo.samplers.B(2)", [20.0, 60.0]),
        ]
        for p1 in values
    ]
    assert "| saving | 41.0 ± 1.4 | 50.0 ± 0.0 | 0.01, A(1) | 0.820 |" in guides.table(runs)
