"""Looks into traced steps for work that grows with the number of classes."""


def tensors_of_size(concrete_function, size: int) -> list[str]:
    """Names of the tensors with a dimension of `size` that a function really computes.

    TensorFlow prunes what neither a result nor a stateful op needs, so only what those need
    counts, in the function and in all that it calls.
    """
    graph = concrete_function.graph
    definition = graph.as_graph_def(add_shapes=True)
    functions = {function.signature.name: function for function in definition.library.function}
    roots = [tensor.op.name for tensor in graph.outputs]
    roots += [op.name for op in graph.control_outputs]
    return _search(definition.node, roots, functions, size)


def _search(nodes, roots, functions, size):
    by_name = {node.name: node for node in nodes}
    found, seen, todo = [], set(), [_node_name(root) for root in roots]
    while todo:
        name = todo.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        node = by_name[name]
        todo += [_node_name(tensor) for tensor in node.input]
        shapes = node.attr["_output_shapes"].list.shape
        if any(size == dim.size for shape in shapes for dim in shape.dim):
            found.append(f"{node.name} ({node.op})")
        for attribute in node.attr.values():
            inner = functions.get(attribute.func.name)
            if inner is not None:
                ends = [*inner.ret.values(), *inner.control_ret.values()]
                found += _search(inner.node_def, ends, functions, size)
    return found


def _node_name(tensor_name):
    return tensor_name.removeprefix("^").split(":")[0]
