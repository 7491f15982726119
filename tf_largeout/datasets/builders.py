"""Registers the builders of all datasets with tensorflow-datasets.

```python
import tensorflow_datasets as tfds
import tf_largeout.datasets.builders

names = tfds.load("place_names", split="train")
```
"""

from tf_largeout.datasets.brown.brown_dataset_builder import Builder as Brown
from tf_largeout.datasets.gcide.gcide_dataset_builder import Builder as Gcide
from tf_largeout.datasets.linux_callees.linux_callees_dataset_builder import (
    Builder as LinuxCallees,
)
from tf_largeout.datasets.linux_tokens.linux_tokens_dataset_builder import (
    Builder as LinuxTokens,
)
from tf_largeout.datasets.place_names.place_names_dataset_builder import Builder as PlaceNames
from tf_largeout.datasets.xmc.xmc_dataset_builder import Builder as Xmc
from tf_largeout.datasets.xmc.xmc_dataset_builder import XmcConfig

__all__ = [
    "Brown",
    "Gcide",
    "LinuxCallees",
    "LinuxTokens",
    "PlaceNames",
    "Xmc",
    "XmcConfig",
]
