"""Options and order of all tests; `tensorflow_setup.py` has their fixtures."""

import os

import pytest

from tests import stock_exceptions

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

collect_ignore = ["jax"]  # `make test-jax` runs it, with Keras's JAX backend.


def pytest_addoption(parser):
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow")


def pytest_configure(config):
    # With `-n`, the process that distributes the tests does not need TensorFlow.
    is_worker = hasattr(config, "workerinput")
    if is_worker or config.option.collectonly or config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.tensorflow_setup")


def pytest_report_header(config):
    return None if config.getoption("--run-slow") else "slow tests are left out (--run-slow)"


# Files with long tests start first. Otherwise one process would run them alone at the end.
_LONG = (
    "tests/integration/",
    "tests/benchmarks/",
    "tests/lab/",
    "tests/readme_test.py",
    "tests/docs_test.py",
)


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--run-slow"):
        # To skip thousands of tests takes longer than to leave them out.
        slow = [item for item in items if "slow" in item.keywords]
        items[:] = [item for item in items if "slow" not in item.keywords]
        config.hook.pytest_deselected(items=slow)
    from tf_largeout.ops import library

    if library.OPS == "stock":
        for item in items:
            if reason := stock_exceptions.reason_to_skip(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
    items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    with stock_exceptions.skipped_without_library():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    with stock_exceptions.skipped_without_library():
        return (yield)
