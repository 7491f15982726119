"""A small model, and the median of several runs, for programs that measure in turns."""

import keras

import tf_largeout as tflo

_SAMPLERS = {
    "uniform": tflo.samplers.UniformSampler,
    # The first step fits the lists, so all timed steps search.
    "inverted_file": lambda m: tflo.samplers.InvertedFileSampler(m, start_step=0),
}


def small_model(num_classes, dim, sampler, num_shards=1):
    """Returns a dense layer and a `LargeOutput`, not compiled."""
    head = tflo.layers.LargeOutput(num_classes, sampler, num_shards=num_shards)
    return keras.Sequential([keras.Input([dim]), keras.layers.Dense(dim), head])


def compiled_model(options, num_classes, num_shards=1):
    """Returns a `small_model` compiled with the `options` of `add_arguments`."""
    sampler = _SAMPLERS[options.sampler](options.num_sampled)
    model = small_model(num_classes, options.dim, sampler, num_shards)
    optimizer = getattr(tflo.optimizers, options.optimizer)()
    model.compile(optimizer, tflo.losses.SampledSoftmaxLoss())
    return model


def middle(runs):
    """Returns the run with the median time, with the times of all runs."""
    ordered = sorted(runs, key=lambda run: run["ms"])
    return {**ordered[len(ordered) // 2], "all_ms": [run["ms"] for run in runs]}


def add_arguments(parser):
    """Adds the options of the model and of the measurement."""
    add = parser.add_argument
    add("--dim", type=int, default=128)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    optimizers = [name for name in vars(tflo.optimizers) if name.startswith(("Lazy", "Row"))]
    add("--optimizer", choices=optimizers, default="LazyAdam")
    add("--sampler", choices=_SAMPLERS, default="uniform")
    add("--steps", type=int, default=60, help="measured steps at most")
    add("--seconds", type=float, default=15.0, help="measured time of a run at most")
    add("--rounds", type=int, default=3, help="turns of all")
    add("--json", help="file for the figures")
