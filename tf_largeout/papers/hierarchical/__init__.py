"""Two-level and Huffman softmax."""
