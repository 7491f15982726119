"""The site of docs/: hooks of mkdocs, and an extension of griffe, which reads docstrings."""
