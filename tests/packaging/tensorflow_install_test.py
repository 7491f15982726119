"""The build finds the installed TensorFlow, and refuses unsupported versions."""

import sysconfig

import pytest
import tensorflow as tf

from build_tools import backend, tensorflow_install
from build_tools.errors import BuildError
from build_tools.tensorflow_install import GPU_REQUIREMENT, REQUIREMENT, VERSIONS
from tests.slow import slow_but


def fake_install(folder, version, name="tensorflow_cpu"):
    """Creates a site-packages folder in which `name` seems to be installed."""
    (folder / "tensorflow" / "include").mkdir(parents=True)
    (folder / "tensorflow" / "libtensorflow_framework.so.2").touch()
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(folder)


def tensorflow_in(requirements):
    return [one for one in requirements if one.startswith("tensorflow")]


def test_the_tensorflow_of_this_environment_is_found_without_importing_it():
    found = tensorflow_install.find_supported()
    assert found.version == tf.__version__
    assert str(found.folder / "include") == tf.sysconfig.get_include()


def test_the_flags_are_those_of_tensorflow():
    found = tensorflow_install.find_supported()
    version = f"-DLARGEOUT_TENSORFLOW_VERSION={tf.__version__}"
    assert {*found.compile_flags} == {*tf.sysconfig.get_compile_flags(), version}
    assert found.link_flags == tf.sysconfig.get_link_flags()


def test_an_isolated_build_uses_the_tensorflow_of_the_environment(tmp_path, monkeypatch):
    outside = fake_install(tmp_path / "outside", "2.21.0")
    monkeypatch.syspath_prepend(fake_install(tmp_path / "inside", "2.21.9"))
    with monkeypatch.context() as patch:
        patch.setattr(sysconfig, "get_path", lambda name, **_: outside)
        assert tensorflow_install.find().version == "2.21.0"


@pytest.mark.parametrize(
    ("hook", "gpu", "requirement"),
    slow_but(
        [("wheel", "", REQUIREMENT), ("editable", "1", GPU_REQUIREMENT)],
        [
            (hook, gpu, GPU_REQUIREMENT if gpu == "1" else REQUIREMENT)
            for hook in ("wheel", "editable")
            for gpu in ("", "0", "1")
        ],
    ),
)
def test_tensorflow_is_a_build_requirement_only_if_none_is_installed(
    tmp_path, monkeypatch, hook, gpu, requirement
):
    monkeypatch.setenv("LARGEOUT_NATIVE", "1")
    monkeypatch.setenv("LARGEOUT_CUDA", gpu)
    requires = getattr(backend, f"get_requires_for_build_{hook}")
    assert not tensorflow_in(requires())
    monkeypatch.setattr(tensorflow_install, "_search_path", lambda: [str(tmp_path)])
    assert tensorflow_in(requires()) == [requirement]
    assert not tensorflow_in(backend.get_requires_for_build_sdist())


@pytest.mark.parametrize(
    ("installed", "keras_backend", "native", "reason"),
    [
        ("jax", "", "", "jax is installed, and TensorFlow is not"),
        ("numpy", "jax", "", "KERAS_BACKEND is jax, and TensorFlow is not installed"),
        ("jax", "jax", "1", None),
        ("numpy", "", "", None),
        ("tensorflow_cpu", "jax", "", None),
    ],
)
def test_an_environment_for_jax_does_not_get_tensorflow(
    tmp_path, monkeypatch, installed, keras_backend, native, reason
):
    folder = fake_install(tmp_path, "2.21.0", installed)
    monkeypatch.setattr(tensorflow_install, "_search_path", lambda: [folder])
    monkeypatch.setattr("build_tools.native.shutil.which", lambda name: "/usr/bin/c++")
    monkeypatch.setenv("KERAS_BACKEND", keras_backend)
    monkeypatch.setenv("LARGEOUT_NATIVE", native)
    assert backend.native.why_not() == reason
    needs_tensorflow = not reason and installed != "tensorflow_cpu"
    assert (
        tensorflow_in(backend.get_requires_for_build_wheel())
        == [REQUIREMENT] * needs_tensorflow
    )


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow_cpu", "tf_nightly_cpu"])
def test_every_tensorflow_package_is_found(tmp_path, name):
    folder = fake_install(tmp_path, "2.21.0", name)
    assert tensorflow_install.find([folder]).version == "2.21.0"


def test_leftover_metadata_without_the_package_does_not_count(tmp_path):
    folder = fake_install(tmp_path, "2.21.0")
    (tmp_path / "tensorflow" / "libtensorflow_framework.so.2").unlink()
    assert tensorflow_install.find([folder]) is None


def test_without_tensorflow_the_error_has_instructions(tmp_path):
    with pytest.raises(BuildError) as caught:
        tensorflow_install.find_supported([str(tmp_path)])
    assert f'pip install "{REQUIREMENT}"' in str(caught.value)


def test_an_unsupported_tensorflow_is_an_error_with_remedies(tmp_path):
    with pytest.raises(BuildError) as caught:
        tensorflow_install.find_supported([fake_install(tmp_path, "2.17.1")])
    for part in ["Installed: TensorFlow 2.17.1", VERSIONS, "release", "virtual environment"]:
        assert part in str(caught.value)
