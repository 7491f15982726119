.PHONY: test-cc
PYTHON ?= python3
test-cc:
	$(PYTHON) -m build_tools tests build/cc_tests
	build/cc_tests $(TEST)
