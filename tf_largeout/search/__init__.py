"""Search structures over the rows of a matrix: which rows have the highest scores for a query.

Each structure is built over a float32 `tf.Variable` `[num_rows, dim]`. The state of a structure
consists of weights of its owner, such as a layer, so it is saved and restored with the owner.
To create them, `build` takes a function `add_weight(name, shape, dtype, initializer,
on_host=False)`, an `AddWeight`. It returns a Keras variable that is not trained, on the CPU
with `on_host`, otherwise on the device of the rows.
"""
