"""Datasets in the text format of the Extreme Classification Repository."""
