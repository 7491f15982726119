"""The rows of the paper's tables: keys of `METHODS` and their titles."""

HASHED = ("lsh_embedding", "lsh_label", "lsh_both")
BY_BUDGET = ("lsh_embedding", "lsh_label", "log_uniform")  # the columns of table 4
ROWS = {
    "softmax": "full softmax",
    "lsh_embedding": "LSH Embedding",
    "lsh_label": "LSH Label",
    "lsh_both": "LSH Embedding and Label",
    "top_k": "TopK softmax",
    "frequency": "frequency softmax",
    "log_uniform": "sampled softmax (log-uniform)",
    "nce": "NCE (log-uniform)",
    "tf_nn_sampled_softmax": "`tf.nn.sampled_softmax_loss`",
    "tf_nn_nce": "`tf.nn.nce_loss`",
    "recommended": "our recommended sampler",
}
