"""Users' sequences of items, for models that predict the next item."""
