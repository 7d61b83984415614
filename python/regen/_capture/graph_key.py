"""A key for Dynamo's graph: two graphs with the same key have the same joint graph.

It covers what AOTAutograd looks at: every node with its arguments, how each tensor looks and which share memory, autocast, the
settings by which PyTorch chooses operators, and the versions of PyTorch and of regen. Where something could hide behind a name (an
operator of the user's own, a mode that is active), there is no key, and nothing is kept.
"""

import functools
import hashlib
import operator
import os
import pathlib
import sys

import torch
import torch._functorch.config
from torch._C import _autograd, _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.fx.node import _get_qualified_name
from torch.utils._python_dispatch import _get_current_dispatch_mode

from regen._capture.dynamo_graph import PLAIN_TENSORS
from regen._capture.trace_errors import source_of_stack_trace

# Operators of PyTorch itself; those of others may be defined by Python code, which a name does not cover.
OPERATOR_NAMESPACES = ("aten", "prims", "prim", "_c10d_functional")
FUNCTION_MODULES = ("torch", "_operator", "operator", "math", "builtins")
CONSTANT_TYPES = (
    type(None), bool, int, float, complex, str, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format)

# Settings that PyTorch keeps behind functions without arguments; not every version has all of them.
SETTINGS = (
    "_get_cudnn_enabled", "_get_cudnn_benchmark", "_get_cudnn_deterministic", "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32",
    "_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled", "_get_cudnn_sdp_enabled",
    "_get_fa3_sdp_enabled", "_get_overrideable_sdp_enabled", "_get_sdp_priority_order", "_get_math_sdp_allow_fp16_bf16_reduction",
    "_get_mkldnn_enabled", "_get_mkldnn_deterministic", "_get_nnpack_enabled", "_get_float32_matmul_precision",
    "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_get_deterministic_fill_uninitialized_memory",
    "_get_linalg_preferred_backend", "_get_blas_preferred_backend", "_get_cpu_capability", "_is_mkldnn_bf16_supported",
    "_is_mkldnn_fp16_supported", "is_anomaly_enabled", "is_inference_mode_enabled", "is_autocast_cache_enabled", "_is_view_replay_enabled",
)
ENVIRONMENT = ("ATEN_", "CUBLAS_", "CUDNN_", "DNNL_", "MKLDNN_", "NVIDIA_TF32", "ONEDNN_", "PYTORCH_", "TORCH_CUDNN", "TORCH_ALLOW_TF32")


class NoKey(Exception):
    """Two things in a graph look the same and may differ."""


def graph_key(flat, names):
    """`names`: id of a live tensor -> (name, role). Raises NoKey."""
    check_surroundings()
    tensors = TensorDescriptions()
    parts = [
        versions(),
        surroundings(),
        [(target, names.get(id(tensor)), tensors.describe(tensor)) for target, tensor in flat.owned.items()],
        [tensors.describe(x) if isinstance(x, torch.Tensor) else constant(x) for x in flat.flat_inputs],
        str(flat.out_spec),
        graph(flat.module, flat.owned),
        devices(tensors.devices),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


# What everything depends on.

@functools.cache
def versions():
    """Regen's own code counts as it is, also between two releases."""
    code = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        code.update(path.name.encode() + b"\0" + path.read_bytes())
    return (torch.__version__, torch.version.git_version, str(torch.version.cuda), str(torch.version.hip), sys.version,
            code.hexdigest())


def surroundings():
    autocast = [(kind, torch.is_autocast_enabled(kind), str(torch.get_autocast_dtype(kind))) for kind in ("cpu", "cuda")]
    settings = [(name, str(getattr(torch._C, name)())) for name in SETTINGS if hasattr(torch._C, name)]
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith(ENVIRONMENT))
    einsum = torch.backends.opt_einsum
    return (autocast, settings, environment, str(torch.get_default_dtype()), str(torch.get_default_device()), torch.get_num_threads(),
            (einsum.is_available(), einsum.enabled, einsum.strategy), torch._functorch.config.get_hash().hex(),
            sorted(torch.ops.loaded_libraries))


def devices(found):
    """The same index may be another card next time."""
    cards = sorted(device for device in found if device.startswith("cuda"))
    described = [(card, torch.cuda.get_device_name(card), torch.cuda.get_device_capability(card)) for card in cards]
    return described, torch.backends.cudnn.version() if cards else None


def check_surroundings():
    """Modes and replaced operators run Python code of their own while a graph is traced."""
    if _get_current_dispatch_mode() is not None:
        raise NoKey("a dispatch mode is active")
    modes = torch.overrides._get_current_function_mode_stack()
    if any(type(mode).__name__ != "DeviceContext" for mode in modes):
        raise NoKey("a mode for functions is active")
    if _functorch.peek_interpreter_stack() is not None:
        raise NoKey("a transform of functions is active")
    hooks = getattr(_autograd, "_top_saved_tensors_default_hooks", None)
    if hooks is not None and hooks(False) is not None:
        raise NoKey("hooks for saved tensors are active")
    if any(name.startswith("aten/") and ("Autograd" in name or "Implicit" in name) for name in torch.library._impls):
        raise NoKey("an operator was replaced")


# Tensors.

class TensorDescriptions:
    """How tensors look; the same tensor, or the same memory, has the same number everywhere."""

    def __init__(self):
        self.numbers = {}
        self.devices = set()

    def describe(self, tensor):
        if type(tensor) not in PLAIN_TENSORS or tensor.layout is not torch.strided:
            raise NoKey(f"a tensor of type {type(tensor).__name__}")
        storage = tensor.untyped_storage()
        self.devices.add(str(tensor.device))
        return (*look(tensor), type(tensor).__name__, tensor.storage_offset(), tensor.is_leaf, tensor._is_view(), tensor.is_conj(),
                tensor.is_neg(), storage.nbytes(), self.number("tensor", id(tensor)), self.number("storage", storage._cdata))

    def number(self, kind, identity):
        return self.numbers.setdefault((kind, identity), len(self.numbers))


def look(tensor):
    sizes = (*tensor.shape, *tensor.stride())
    if any(type(n) is not int for n in sizes):
        raise NoKey("a size that is no number")
    return str(tensor.dtype), tensor.dim(), sizes, str(tensor.device), tensor.requires_grad


# Nodes.

def graph(module, owned):
    """The nodes of a graph, and of the graphs inside it."""
    return [
        (node.op, node.name, target_of(node, module, owned), argument(node.args), argument(node.kwargs), meta(node))
        for node in module.graph.nodes]


def target_of(node, module, owned):
    if node.op in ("placeholder", "output", "call_method"):
        return node.target
    if node.op == "call_function":
        return function_name(node.target)
    if node.op == "get_attr" and node.target in owned:
        return node.target  # described where it is owned
    if node.op == "get_attr":
        return node.target, inner_graph(operator.attrgetter(node.target)(module))
    raise NoKey(f"a node of kind {node.op}")


def inner_graph(held):
    """Of a function of autograd, or of a checkpoint. What it reads is handed in, so it owns nothing."""
    if not isinstance(held, torch.fx.GraphModule):
        raise NoKey(f"an attribute of type {type(held).__name__}")
    return graph(held, {})


@functools.cache
def function_name(function):
    """A name that leads to this very function, of PyTorch or Python."""
    if isinstance(function, torch._ops.OpOverload):
        if function.namespace not in OPERATOR_NAMESPACES:
            raise NoKey(f"operator {function}")
        return str(function)
    if isinstance(function, torch._ops.HigherOrderOperator) and type(function).__module__.startswith("torch."):
        return f"higher_order.{type(function).__module__}.{function.name()}"
    try:
        name = _get_qualified_name(function)
    except Exception as error:
        raise NoKey(f"function {function}") from error
    name = name if "." in name else f"builtins.{name}"
    module, _, path = name.partition(".")
    if module not in FUNCTION_MODULES or not leads_to(sys.modules.get(module), path, function):
        raise NoKey(f"function {name}")
    return name


def leads_to(module, path, function):
    try:
        return operator.attrgetter(path)(module) is function
    except AttributeError:
        return False


def argument(given):
    """With types, as 1, 1.0 and True are equal but not the same."""
    if isinstance(given, torch.fx.Node):
        return "node", given.name
    if type(given) in CONSTANT_TYPES:
        return constant(given)
    if isinstance(given, slice):
        return "slice", argument((given.start, given.stop, given.step))
    if isinstance(given, (list, tuple)):
        return type(given).__name__, [argument(item) for item in given]
    if isinstance(given, dict):
        return "dict", [(constant(key), argument(item)) for key, item in given.items()]
    raise NoKey(f"an argument of type {type(given).__name__}")


def constant(thing):
    if type(thing) not in CONSTANT_TYPES:
        raise NoKey(f"a constant of type {type(thing).__name__}")
    return type(thing).__name__, repr(thing)


def meta(node):
    """Where the node comes from, for messages, and how its results look."""
    found = node.meta.get("example_value", node.meta.get("val"))
    return source_of_stack_trace(node.meta.get("stack_trace")), results(found)


def results(found):
    if isinstance(found, torch.Tensor):
        return look(found)
    if isinstance(found, (list, tuple)):
        return [results(item) for item in found]
    return None if found is None else type(found).__name__
