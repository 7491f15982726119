"""mkdocs hooks and a griffe extension for the site of docs/. griffe reads the docstrings."""
