"""All planted faults, by the part of the library that contains them."""

from lab.mutation import losses, ops, optimizers, retrieval, samplers, serving

FAULTS = {
    "ops": ops.FAULTS,
    "samplers": samplers.FAULTS,
    "losses": losses.FAULTS,
    "optimizers": optimizers.FAULTS,
    "retrieval": retrieval.FAULTS,
    "serving": serving.FAULTS,
}
