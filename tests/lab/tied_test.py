import json

import pytest

from lab.speed import tied


@pytest.mark.slow
def test_all_models_are_measured_and_written(tmp_path):
    path = tmp_path / "tied.json"
    arguments = ["--num-words", "50", "--dim", "4", "--batch-size", "2", "--length", "3"]
    report = tied.main([*arguments, "--num-sampled", "8", "--steps", "2", "--json", str(path)])
    (row,) = json.loads(path.read_text())["rows"]
    assert row == report["rows"][0]
    names = {
        f"{how}, {kind}" for how in ("tied", "untied") for kind in ("Embedding", "EmbeddingBag")
    }
    assert set(row) == {"num_words", *names}
    assert all(row[name] > 0 for name in names)
