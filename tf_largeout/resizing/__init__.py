"""`tf_largeout.resize_classes`: a trained model with another number of classes."""
