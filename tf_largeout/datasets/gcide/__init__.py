"""The next word of a dictionary's articles."""
