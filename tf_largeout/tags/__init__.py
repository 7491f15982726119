"""What an output layer passes to losses, metrics and retrieval along with its logits."""
