"""Looks into traced training steps for work that grows with the number of classes."""

import tensorflow as tf


def tensors_of_size(train_function: tf.types.experimental.ConcreteFunction, size: int):
    """Names of tensors with a dimension of `size` that a step really computes.

    TensorFlow prunes what neither an output nor a stateful op needs, so only what those need
    counts.
    """
    found = []
    for graph in _graphs(train_function.graph):
        needed = _needed(graph)
        found += [
            tensor.name
            for op in needed
            for tensor in op.outputs
            if tensor.dtype != tf.resource and size in (tensor.shape or [])
        ]
    return found


def _graphs(graph):
    """The graph and those of the functions that it calls."""
    seen, todo = [], [graph]
    while todo:
        graph = todo.pop()
        seen.append(graph)
        for op in graph.get_operations():
            for attribute in ("f", "body", "cond", "then_branch", "else_branch"):
                if attribute in op.node_def.attr:
                    name = op.get_attr(attribute).name
                    inner = graph._functions.get(name) if hasattr(graph, "_functions") else None
                    if inner is not None and getattr(inner, "graph", None) is not None:
                        todo.append(inner.graph)
    return seen


def _needed(graph):
    needed = {}
    todo = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    while todo:
        op = todo.pop()
        if op.name not in needed:
            needed[op.name] = op
            todo += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return list(needed.values())
