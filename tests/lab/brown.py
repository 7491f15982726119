"""A tiny text in place of the Brown corpus, for programs of the lab."""

from benchmarks.harness import own_process
from lab.corpora import brown
from lab.shared import language_model_case
from tests.datasets.sources import pinned
from tests.lab.corpora.archives import documents, write_archive

SMALL = ["--width", "8", "--length", "6", "--batch-size", "8", "--vocabulary", "12"]


def provide(tmp_path, monkeypatch):
    """Provides the text, and lets programs train in this process, which can find it."""
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    archive = pinned(brown.ARCHIVE, write_archive(manual / "brown.tgz", documents()))
    monkeypatch.setattr(brown, "ARCHIVE", archive)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(language_model_case, "_VALIDATION_FRACTION", 0.3)
    monkeypatch.setattr(own_process, "call", lambda function, *given: function(*given))
