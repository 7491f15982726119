"""The requirements of `make docs`, which are the extra `docs`. Run as a module, prints them."""

REQUIREMENTS = [
    "mkdocs==1.6.1",
    "mkdocs-material==9.8.1",
    "mkdocstrings-python==2.0.11",
    "ruff",  # formats signatures
]

if __name__ == "__main__":
    print(*REQUIREMENTS)
