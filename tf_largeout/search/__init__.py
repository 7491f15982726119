"""Search structures over the rows of a float32 `tf.Variable` `[num_rows, dim]`.

Their state consists of weights of an owner, such as a layer. `build` creates them by an
`AddWeight`, on the device of the rows, or on the CPU with `on_host`.
"""
