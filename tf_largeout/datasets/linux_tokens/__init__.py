"""The next token of C code."""
