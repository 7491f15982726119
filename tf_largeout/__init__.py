"""Output layers with 100,000 to 100,000,000 classes for TensorFlow and Keras."""

# Imported before Keras: its errors name the supported TensorFlow versions.
import tf_largeout.ops.library  # noqa: F401
from tf_largeout import callbacks as callbacks
from tf_largeout import datasets as datasets
from tf_largeout import distribute as distribute
from tf_largeout import layers as layers
from tf_largeout import losses as losses
from tf_largeout import metrics as metrics
from tf_largeout import ops as ops
from tf_largeout import optimizers as optimizers
from tf_largeout import papers as papers  # registers its classes with Keras
from tf_largeout import retrieval as retrieval
from tf_largeout import samplers as samplers
from tf_largeout import serving as serving
from tf_largeout.convert import convert as convert
from tf_largeout.convert import restore as restore
from tf_largeout.join_models import join_models as join_models
from tf_largeout.keras_names import register as _register_keras_names
from tf_largeout.resizing.resize_classes import resize_classes as resize_classes
from tf_largeout.version import __version__ as __version__

_register_keras_names()
