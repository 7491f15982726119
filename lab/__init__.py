"""The notes on measurements, with their programs and results: see README.md. Not installed."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
