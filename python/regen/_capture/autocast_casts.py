"""Autocast keeps the cast of a parameter: used several times, it is cast once.

The trace casts it at every use, which gives the same forward pass but another gradient: eager adds up the gradients of the uses in the
low precision and casts the sum back, the trace casts each back and adds up afterwards. This puts the trace right.
"""

import torch

aten = torch.ops.aten
LOW_PRECISION = (torch.bfloat16, torch.float16)


def merge_casts_of_parameters(graph):
    output = next(node for node in graph.nodes if node.op == "output")
    for given, descriptor in zip(output.args[0], output.meta["desc"]):
        if type(descriptor).__name__ != "GradAOTOutput" or not isinstance(given, torch.fx.Node):
            continue
        parameter = next(n for n in graph.nodes if n.op == "placeholder" and n.meta.get("desc") == descriptor.grad_of)
        casts = [user for user in parameter.users if is_low_cast(user)]
        if len(casts) > 1 and len({cast.meta["val"].dtype for cast in casts}) == 1:
            merge_forward(casts)
            merge_backward(graph, given, casts[0].meta["val"].dtype)


def is_low_cast(node):
    return node.target is aten._to_copy.default and node.meta["val"].dtype in LOW_PRECISION


def merge_forward(casts):
    for other in casts[1:]:
        other.replace_all_uses_with(casts[0])


def merge_backward(graph, gradient, dtype):
    """cast(a) + cast(b) + c + cast(d) becomes cast(a + b + d) + c: the sum arrives when its last part does."""
    terms = terms_of_sum(gradient)
    parts = [term for term in terms if is_cast_back(term, dtype)]
    if len(parts) < 2:
        return
    others = [term for term in terms if term not in parts]
    before = [term for term in others if terms.index(term) < terms.index(parts[-1])]
    after = [term for term in others if term not in before]
    with graph.inserting_before(gradient):
        total = added_up(graph, [part.args[0] for part in parts])
        cast = graph.call_function(parts[0].target, (total, *parts[0].args[1:]), dict(parts[0].kwargs))
        cast.meta = dict(parts[0].meta)
        whole = added_up(graph, [*before, cast, *after])
    gradient.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not whole)


def terms_of_sum(node):
    """The terms of a + b + c in the order in which they were added."""
    if node.target is aten.add.Tensor and all(isinstance(a, torch.fx.Node) for a in node.args) and not node.kwargs:
        return [*terms_of_sum(node.args[0]), node.args[1]]
    return [node]


def is_cast_back(node, dtype):
    return (
        node.target is aten._to_copy.default and isinstance(node.args[0], torch.fx.Node)
        and node.meta["val"].dtype == torch.float32 and node.args[0].meta["val"].dtype == dtype)


def added_up(graph, terms):
    total = terms[0]
    for term in terms[1:]:
        added = graph.call_function(aten.add.Tensor, (total, term))
        added.meta = {**term.meta, "val": torch.add(total.meta["val"], term.meta["val"])}
        total = added
    return total
