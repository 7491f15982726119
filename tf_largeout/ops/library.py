"""Loads the C++ op library; nothing else in the package touches it."""

import pathlib

import tensorflow as tf

_PATH = pathlib.Path(__file__).with_name("_largeout_ops.so")

gen_ops = tf.load_op_library(str(_PATH))
