"""`tf_largeout.resize_classes`: changes the number of classes of a trained model."""
