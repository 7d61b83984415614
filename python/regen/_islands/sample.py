"""Runs the part of a captured forward pass that leads to its islands, on the sample batch, without gradients: what islands take depends on values."""

from typing import TYPE_CHECKING, Any

import torch

from regen._capture.program_builder import reads_of
from regen._capture.traced.evaluation import Evaluation

if TYPE_CHECKING:
    from regen._capture.traced.tracer import Tracer


def run_on_sample(tracer: "Tracer", islands: list[dict[str, Any]]) -> None:
    """Holds only what is still to be read: without gradients that is little.

    Args:
        tracer: after the forward pass.
        islands: their nodes.
    """
    evaluate(tracer, leading_to(tracer.builder.nodes, islands), [])


def values_on_sample(tracer: "Tracer", values: list[int]) -> list[torch.Tensor]:
    """What these values of the forward pass so far are on the sample batch."""
    wanted = set(values)
    return evaluate(tracer, leading_to(tracer.builder.nodes, [n for n in tracer.builder.nodes if wanted & {v for v in n["outputs"] if v is not None}]), values)


def evaluate(tracer: "Tracer", nodes: list[dict[str, Any]], values: list[int]) -> list[torch.Tensor]:
    last = last_reads(nodes)
    decisions = tracer.decisions
    evaluation = Evaluation(decisions.described, decisions.bring, tracer.draws.before)
    with torch.no_grad(), torch._C._DisableAutocast():
        for position, node in enumerate(nodes):
            for value in (*reads_of(node), *(v for v in node["outputs"] if v is not None)):
                decisions.describe(value)
            evaluation.run(node)
            done = [v for v in evaluation.found if last.get(v, -1) <= position and v not in values]
            for value in done:
                del evaluation.found[value]
        for value in values:
            decisions.describe(value)
        return [evaluation.value(value).detach().clone() for value in values]


def leading_to(nodes: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    chosen = {id(node) for node in wanted}
    needed: set[int] = set()
    found = []
    for node in reversed(nodes):
        if id(node) in chosen or any(v in needed for v in node["outputs"] if v is not None):
            needed.update(reads_of(node))
            found.append(node)
    return found[::-1]


def last_reads(nodes: list[dict[str, Any]]) -> dict[int, int]:
    """Value -> the last of these nodes that reads it."""
    return {int(value): position for position, node in enumerate(nodes) for value in reads_of(node)}
