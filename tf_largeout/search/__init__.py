"""Search structures over the rows of a matrix: which rows have the highest scores for a query.

Each structure is built over a float32 `tf.Variable` `[num_rows, dim]`. Its state consists of
weights of its owner, such as a layer, so it is saved and restored with the owner. `build`
creates them by an `AddWeight`, on the device of the rows, or on the CPU with `on_host`.
"""
