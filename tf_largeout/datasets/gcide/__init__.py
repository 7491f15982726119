"""Next-word prediction on the articles of a dictionary."""
