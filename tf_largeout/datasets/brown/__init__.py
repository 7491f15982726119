"""The next word of American English of 1961, as much text as the Penn Treebank."""
