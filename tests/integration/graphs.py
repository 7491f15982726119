"""Finds tensors in traced steps that grow with the number of classes."""


def tensors_of_size(concrete_function, size: int) -> list[str]:
    """Returns the names of the computed tensors that have a dimension of `size`.

    TensorFlow inlines called functions and removes operations that neither a result nor a
    stateful op needs. Reads of variables in called functions do not count as stateful. So
    the search starts at the results and the stateful ops and follows their inputs. In a
    called function it starts at the stateful ops other than reads and, if a result is
    used, at the results.
    """
    graph = concrete_function.graph
    definition = graph.as_graph_def(add_shapes=True)
    functions = {function.signature.name: function for function in definition.library.function}
    roots = [tensor.op.name for tensor in graph.outputs]
    roots += ["^" + op.name for op in graph.control_outputs]
    return _search(definition.node, roots, functions, size)


def _search(nodes, roots, functions, size):
    by_name = {node.name: node for node in nodes}
    found, seen, todo = [], set(), list(roots)
    while todo:
        reached = todo.pop()
        control_only = reached.startswith("^")
        name = reached.removeprefix("^").split(":")[0]
        if (name, control_only) in seen or name not in by_name:
            continue
        seen.add((name, control_only))
        node = by_name[name]
        todo += node.input
        called = [
            functions[a.func.name] for a in node.attr.values() if a.func.name in functions
        ]
        for inner in called:
            reads = {n.name for n in inner.node_def if n.op == "ReadVariableOp"}
            ends = ["^" + name for name in inner.control_ret.values() if name not in reads]
            ends += [] if control_only else inner.ret.values()
            found += _search(inner.node_def, ends, functions, size)
        if not (called and control_only):
            shapes = node.attr["_output_shapes"].list.shape
            if any(size == dim.size for shape in shapes for dim in shape.dim):
                found.append(f"{node.name} ({node.op})")
    return found
