"""Options of the tests for Keras's JAX backend. Their process must not import TensorFlow."""

import os
import sys

import pytest

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time is that of XLA's compiler.
_LESS_OPTIMIZED = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_LESS_OPTIMIZED}"
sys.modules["tensorflow"] = None  # An import is then an error, also where it is installed.


def pytest_addoption(parser):
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow")


def pytest_report_header(config):
    return None if config.getoption("--run-slow") else "slow tests are left out (--run-slow)"


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--run-slow"):
        slow = [item for item in items if "slow" in item.keywords]
        items[:] = [item for item in items if "slow" not in item.keywords]
        config.hook.pytest_deselected(items=slow)


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Each test gets the same random numbers, independent of previous tests."""
    import keras

    keras.utils.set_random_seed(20_260_101)
