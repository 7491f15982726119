"""The text format of the Extreme Classification Repository."""
