"""`python -m build_tools.site.requirements`: what `make docs` installs, the extra `docs`."""

REQUIREMENTS = [
    "mkdocs==1.6.1",
    "mkdocs-material==9.8.1",
    "mkdocstrings-python==2.0.11",
    "ruff",  # breaks the lines of signatures
]

if __name__ == "__main__":
    print(*REQUIREMENTS)
