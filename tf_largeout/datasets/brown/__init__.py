"""Next-word prediction on American English of 1961, a text as long as the Penn Treebank."""
