"""One Python function a C++ op."""
