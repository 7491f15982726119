import tensorflow as tf

from tf_largeout.ops import process_ops, server_versions


def test_a_process_without_versions_reports_none(monkeypatch):
    monkeypatch.delenv("LARGEOUT_SERVER_VERSIONS", raising=False)
    assert server_versions().numpy() == b""


def test_a_server_reports_its_versions(monkeypatch):
    monkeypatch.setenv("LARGEOUT_SERVER_VERSIONS", "to be put back")
    process_ops.publish_versions()
    said = tf.function(server_versions)().numpy().decode()
    assert said == process_ops.local_versions()
    assert tf.__version__ in said and said.startswith("tf_largeout ")
    assert server_versions().shape == []
