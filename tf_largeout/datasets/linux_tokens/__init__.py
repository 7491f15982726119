"""Next-token prediction on C code."""
