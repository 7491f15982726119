"""On which device TensorFlow runs the operations of a traced function with a GPU, and why.

It follows the rules of TensorFlow's placer, without a GPU: the CUDA build of TensorFlow lists
its kernels on any machine. An operation runs where a `tf.device` says, else where its variable
is, else on the GPU if there is a kernel for its dtypes. Some operands of GPU kernels are in the
memory of the host, such as shapes. A step waits for the GPU where the host needs what the GPU
computes.
"""

import dataclasses
import functools

import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph, kernels, op_def_registry

HOST, GPU = "host", "gpu"
# Kernels that copy to the host within, or wait: for a size, a flag, or the result of a library.
WAITING = {
    "CheckNumerics",
    "CheckNumericsV2",
    "DynamicPartition",
    "MatrixInverse",
    "MatrixSolve",
    "SegmentMean",
    "SegmentSum",
    "SelfAdjointEigV2",
    "Where",
}
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")
_LOOPS = ("While", "StatelessWhile")
_METADATA = ("Shape", "ShapeN", "Size", "Rank")  # run where their input is
_NO_KERNEL_NEEDED = ("NoOp", "Placeholder", "_Arg", "_Retval")


@dataclasses.dataclass(frozen=True)
class Use:
    """An operation. `kernel` is "CPU only" or "GPU", and what of it is on the host."""

    op: str
    dtypes: str
    kernel: str
    on: str


@dataclasses.dataclass(frozen=True)
class Wait:
    """A place where the host waits for the GPU: `consumer` needs a result of `producer`."""

    producer: str
    consumer: str
    reason: str
    where: str  # the line of the code that created the consumer


@dataclasses.dataclass
class Analysis:
    """What a function does: its operations, and where it waits."""

    uses: set = dataclasses.field(default_factory=set)
    waits: set = dataclasses.field(default_factory=set)
    errors: set = dataclasses.field(default_factory=set)


def analyse(concrete, gpu_device):
    """Analyses a `ConcreteFunction` whose arguments are on the host.

    Args:
        concrete: The function.
        gpu_device: Name of the device that counts as a GPU, such as "CPU:1". Variables on it,
            and operations in a scope of it, are on the GPU.

    Returns:
        An `Analysis`.
    """
    graph = concrete.graph
    definition = graph.as_graph_def()
    library = {one.signature.name: one for one in definition.library.function}
    inputs = {}
    for external, internal in graph.captures:
        on_gpu = external.dtype != tf.resource or external.device.endswith(gpu_device)
        inputs[internal.op.name] = GPU if on_gpu else HOST
    found = Analysis()
    walker = _Walker(library, gpu_device, found, functools.partial(_source, graph))
    roots = [one.name for one in graph.outputs]
    roots += [f"^{one.name}" for one in graph.control_outputs]
    walker.walk(definition.node, inputs, "", roots)
    return found


class _Walker:
    def __init__(self, library, gpu_device, found, source):
        self._library, self._gpu_device, self._found = library, gpu_device, found
        self._source, self._memo = source, {}

    def walk(self, nodes, inputs, path, roots):
        """Places the nodes that `roots` need; returns the place of each tensor and node."""
        nodes = _needed(nodes, roots)
        tensors, placed = {}, {}
        consumers, used = {}, {}
        for node in nodes:
            for name in node.input:
                consumers.setdefault(_node_of(name), []).append(node.name)
        for name in [*roots, *(name for node in nodes for name in node.input)]:
            if not name.startswith("^"):
                used.setdefault(_node_of(name), set()).add(_tensor_of(name)[1])
        generators = []
        for node in nodes:
            if node.op in ("Placeholder", "_Arg"):
                placed[node.name] = inputs.get(node.name, HOST)
                tensors[node.name, 0] = placed[node.name]
            elif self._is_generator(node):
                generators.append(node)
            else:
                self._place(node, tensors, placed, path, used)
        for node in generators:
            users = {placed.get(one) for one in consumers.get(node.name, [])}
            on = HOST if users == {HOST} or not _kernel(node, GPU) else GPU
            placed[node.name] = on
            self._note(node, on)
            tensors[node.name, 0] = _memory(node, on)[1][0]
        constant = _constants(nodes)
        for node in nodes:  # a constant of int32 is in host memory
            for index, dtype in enumerate(_flat_types(node, "output_arg")):
                if node.name in constant and dtype == tf.int32.as_datatype_enum:
                    tensors[node.name, index] = HOST
        for node in nodes:
            if node.name not in constant:
                self._check(node, tensors, placed, path, nodes)
        return tensors, placed

    def _is_generator(self, node):
        """Returns whether a node without inputs runs where all its consumers run."""
        if node.device or any(not name.startswith("^") for name in node.input):
            return False
        return node.op not in _NO_KERNEL_NEEDED and len(_memory(node, HOST)[1]) == 1

    def _place(self, node, tensors, placed, path, used):
        """Notes on which device a node runs, and in which memory its results are."""
        flat = [_tensor_of(name) for name in node.input if not name.startswith("^")]
        sources = [tensors.get(one, GPU) for one in flat]
        on = self._explicit(node)
        if node.op in _CALLS:
            name = node.attr["f"].func.name
            results = self._call(name, sources, f"{path}{node.name}/", used.get(node.name, ()))
        elif node.op in _BRANCHES:
            results = self._branches(node, sources, on, f"{path}{node.name}/")
        elif node.op in _LOOPS:
            results = self._loop(node, sources, on, f"{path}{node.name}/")
        else:
            on = self._device(node, sources, on)
            results = _memory(node, on)[1]
            if node.op == "Identity" and len(node.input) == 1 and on == GPU:
                results = sources  # the graph optimizer removes it
            self._note(node, on)
        placed[node.name] = on or GPU
        for index, place in enumerate(results):
            tensors[node.name, index] = place

    def _explicit(self, node):
        if not node.device:
            return None
        if node.device.endswith(self._gpu_device):
            return GPU
        spec = tf.DeviceSpec.from_string(node.device)
        return HOST if spec.device_type == "CPU" else GPU

    def _device(self, node, sources, explicit):
        of_resource = self._resource_place(node, sources)
        if of_resource == GPU and not _kernel(node, GPU):
            self._found.errors.add(f"{node.op} ({_dtypes(node)}) of a variable on the GPU")
        if of_resource or explicit:
            wanted = of_resource or explicit
            if wanted == GPU and node.op not in _NO_KERNEL_NEEDED and not _kernel(node, GPU):
                return HOST  # soft placement
            return wanted
        if node.op in _METADATA and sources[:1] == [HOST]:
            return HOST
        if node.op in _NO_KERNEL_NEEDED:
            return GPU
        return GPU if _kernel(node, GPU) else HOST

    def _resource_place(self, node, sources):
        types = _flat_types(node, "input_arg")
        for dtype, place in zip(types, sources, strict=True):
            if dtype == tf.resource.as_datatype_enum:
                return place
        return None

    def _note(self, node, on):
        if node.op in _NO_KERNEL_NEEDED:
            return
        kernel = _kernel(node, GPU)
        kind = "CPU only" if kernel is None else "GPU"
        if kernel is not None and kernel.host_memory_arg:
            kind = f"GPU; on the host: {', '.join(kernel.host_memory_arg)}"
        self._found.uses.add(Use(node.op, _dtypes(node), kind, on))

    def _body(self, name):
        if name not in self._memo:
            fdef = self._library[name]
            definition, names = function_def_to_graph.function_def_to_graph_def(fdef)
            arguments = [arg.name for arg in fdef.signature.input_arg]
            results = [names[fdef.ret[arg.name]] for arg in fdef.signature.output_arg]
            control = [f"^{_node_of(one)}" for one in fdef.control_ret.values()]
            self._memo[name] = definition.node, arguments, results, control
        return self._memo[name]

    def _call(self, name, sources, path, used=None):
        """Walks a function, of whose results only those with a number in `used` are read."""
        nodes, arguments, results, control = self._body(name)
        inputs = dict(zip(arguments, sources, strict=True))
        roots = [one for index, one in enumerate(results) if used is None or index in used]
        tensors, _ = self.walk(nodes, inputs, path, roots + control)
        return [tensors.get(_tensor_of(one), GPU) for one in results]

    def _branches(self, node, sources, on, path):
        attrs = ("then_branch", "else_branch")
        names = [node.attr[one].func.name for one in attrs if node.attr[one].func.name]
        names += [one.name for one in node.attr["branches"].list.func]
        found = [self._call(one, sources[1:], path) for one in names]
        return [GPU if GPU in places else HOST for places in zip(*found, strict=True)]

    def _loop(self, node, sources, on, path):
        types = [tf.as_dtype(one) for one in node.attr["T"].list.type]
        places = []
        for dtype, source in zip(types, sources, strict=True):
            # A variable of a loop is on the GPU, except for int32, as in `Merge` and `Switch`.
            stays = dtype == tf.resource or on == HOST
            places.append(source if stays else HOST if dtype == tf.int32 else GPU)
        (predicate,) = self._call(node.attr["cond"].func.name, places, path + "cond/")
        if predicate == GPU:
            self._found.waits.add(
                Wait("loop", node.op, "condition, in each turn", self._source(path, node.name))
            )
        self._call(node.attr["body"].func.name, places, path + "body/")
        return places

    def _check(self, node, tensors, placed, path, nodes):
        """Notes each result of the GPU that the host needs for this node."""
        on = placed[node.name]
        named = {one.name: one for one in nodes}
        kinds = None
        flat = [_tensor_of(name) for name in node.input if not name.startswith("^")]
        types = _flat_types(node, "input_arg")
        for index, source in enumerate(flat):
            if tensors.get(source) != GPU or node.op in _CALLS + _LOOPS:
                continue
            if types[index] == tf.resource.as_datatype_enum:
                continue
            if node.op in _BRANCHES:
                needed = index == 0
            elif on == HOST:
                needed = True
            else:
                kinds = kinds or _memory(node, GPU)[0]
                needed = kinds[index] == HOST
            if needed:
                producer = named[source[0]]
                reason = "runs on the host" if on == HOST else "operand in host memory"
                if on == HOST and not node.device and not _kernel(node, GPU):
                    reason = "has no GPU kernel"
                self._wait(producer, node, reason, path)
        if on == GPU and node.op in WAITING:
            self._wait(node, node, "waits within", path)
        for name in node.input:
            before = name.removeprefix("^")
            if name.startswith("^") and on == HOST and placed.get(before) == GPU:
                if before in named and named[before].op not in ("NoOp", "Placeholder", "Const"):
                    self._wait(named[before], node, "control dependency", path)

    def _wait(self, producer, node, reason, path):
        where = self._source(path, node.name)
        self._found.waits.add(Wait(producer.op, node.op, reason, where))


def _source(graph, path, name):
    """Returns the line of our code that created an operation, or the call with it."""
    names, parts = [] if path else [name], path.rstrip("/").split("/")
    names += ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for one in names:
        try:
            frames = graph.get_operation_by_name(one).traceback
        except (KeyError, ValueError):
            continue
        for frame in reversed(list(frames)):
            _, package, rest = frame.filename.rpartition("/tf_largeout/")
            if package:
                return f"{rest}:{frame.lineno}"
        return "Keras or TensorFlow"
    return "a gradient"


def _needed(nodes, roots):
    """Returns the nodes that `roots` need, so that each comes after its inputs."""
    named, done, result = {node.name: node for node in nodes}, set(), []
    for first in roots:
        stack = [named[_node_of(first)]]
        while stack:
            node = stack[-1]
            waiting = [
                named[one]
                for one in map(_node_of, node.input)
                if one in named and one not in done
            ]
            if waiting and node.name not in done:
                stack.extend(waiting)
                continue
            stack.pop()
            if node.name not in done:
                done.add(node.name)
                result.append(node)
    return result


def _constants(nodes):
    """Returns the names of the operations that TensorFlow computes once, before a step."""
    found = set()
    for node in nodes:
        if not node.input and node.op == "Const":
            found.add(node.name)
        elif node.input and node.op not in _CALLS + _BRANCHES + _LOOPS:
            if not op_def_registry.get(node.op).is_stateful:
                if all(_node_of(one) in found for one in node.input):
                    found.add(node.name)
    return found


def _node_of(name):
    return name.removeprefix("^").partition(":")[0]


def _tensor_of(name):
    node, _, index = name.partition(":")
    return node, int(index or 0)


def _flat_types(node, kind):
    """Returns the dtype of each input or output, as numbers; `kind` is a field of `OpDef`."""
    return [dtype for _, dtype in _flat_args(node, kind)]


def _flat_args(node, kind):
    found = []
    for arg in getattr(op_def_registry.get(node.op), kind):
        if arg.type_list_attr:
            found += [(arg.name, one) for one in node.attr[arg.type_list_attr].list.type]
            continue
        dtype = arg.type or node.attr[arg.type_attr].type
        count = node.attr[arg.number_attr].i if arg.number_attr else 1
        found += [(arg.name, dtype)] * count
    return found


def _memory(node, on):
    """Returns the memory of each input and of each output of a node that runs on `on`."""
    kernel = _kernel(node, GPU) if on == GPU else None
    on_host = set(kernel.host_memory_arg) if kernel else set()
    found = []
    for kind in ("input_arg", "output_arg"):
        places = []
        for name, _ in _flat_args(node, kind):
            places.append(HOST if on == HOST or name in on_host else GPU)
        found.append(places)
    return found


def _kernel(node, on):
    """Returns the kernel for a node on the GPU or on the host, or None."""
    device = "GPU" if on == GPU else "CPU"
    for wanted in (device, "DEFAULT"):
        for kernel in _kernels(node.op):
            if kernel.device_type == wanted and not kernel.label and _fits(kernel, node):
                return kernel
    return None


def _fits(kernel, node):
    for constraint in kernel.constraint:
        attr = node.attr[constraint.name]
        types = attr.list.type or [attr.type]
        if any(one not in constraint.allowed_values.list.type for one in types):
            return False
    return True


@functools.cache
def _kernels(op):
    return list(kernels.get_registered_kernels_for_op(op).kernel)


def _dtypes(node):
    """Returns the dtypes of the inputs and outputs of a node, as text."""
    sides = []
    for kind in ("input_arg", "output_arg"):
        names = [tf.as_dtype(one).name for one in _flat_types(node, kind)]
        sides.append(", ".join(dict.fromkeys(names)))
    return " -> ".join(sides)
