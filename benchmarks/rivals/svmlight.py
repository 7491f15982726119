"""The text format that the label trees read: `l1,l2 id:weight id:weight ...`."""


def write_svmlight(path, examples, tf_idf):
    """Writes `Examples` with the weights of a `TfIdf`, and the header `N D L`."""
    ids, weights = tf_idf.weigh(examples.features)
    sizes = len(ids), examples.num_features, examples.num_classes
    with open(path, "w") as file:
        file.write(" ".join(map(str, sizes)) + "\n")
        for row, (start, end) in enumerate(zip(ids.offsets[:-1], ids.offsets[1:], strict=True)):
            pairs = zip(
                ids.values[start:end].tolist(), weights[start:end].tolist(), strict=True
            )
            labels = ",".join(map(str, examples.labels.row(row).tolist()))
            file.write(" ".join([labels, *(f"{i}:{w:.5g}" for i, w in pairs)]) + "\n")
