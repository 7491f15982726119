"""The code of the guide on JAX runs, and the example of README.md learns on JAX, too."""

import pytest

from tests.code_blocks import run_blocks
from tests.source_tree import ROOT


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(ROOT / "docs/guides/jax.md")
    assert namespace["result"]["precision_at_1"] > 0.6
    assert (tmp_path / "model.keras").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["UniformSampler(4096)", "TopKSampler(4096, num_hard=16)"])
def test_the_example_of_the_readme_learns(tmp_path, monkeypatch, sampler):
    text = (ROOT / "README.md").read_text()
    assert "samplers.InvertedFileSampler(4096)" in text
    page = tmp_path / "README.md"
    page.write_text(text.replace("InvertedFileSampler(4096)", sampler))
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(page)
    assert namespace["result"]["precision_at_1"] > 0.6
