"""The code blocks of README.md run, and the first example learns."""

import pathlib
import re

README = pathlib.Path(__file__).parent.parent / "README.md"


def test_the_python_blocks_run_in_order_and_the_model_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    assert (tmp_path / "model.keras").is_file()
    assert namespace["result"]["precision_at_1"] > 0.6
