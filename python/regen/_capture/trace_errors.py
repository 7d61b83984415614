"""Errors of the tracer as one line: what happened, where in the user's code, and what was expected."""

import os
import re
import traceback

from regen.errors import CaptureError

TORCH_FOLDER = os.sep + os.path.join("site-packages", "torch") + os.sep
REGEN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def short_location(path, line):
    """`model.py:31`: enough to find the line, short enough for a message."""
    return f"{os.path.basename(path)}:{line}"


def is_user_file(path):
    return TORCH_FOLDER not in path and not path.startswith(REGEN_FOLDER) and not path.startswith("<")


def source_of_stack_trace(text):
    """The innermost line of the user's own code in a formatted traceback, or ''."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', text or "")
    users = [frame for frame in frames if is_user_file(frame[0])]
    return short_location(*users[-1]) if users else ""


def place_of(error):
    """Where in the user's code an error of the tracer arose, or ''."""
    stack = getattr(error, "real_stack", None) or []
    users = [frame for frame in stack if is_user_file(frame.filename)]
    if users:
        return short_location(users[-1].filename, users[-1].lineno)
    return source_of_stack_trace(str(error)) or place_in_traceback(error)


def place_in_traceback(error):
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_user_file(frame.filename) and frame.name == "forward"]
    return short_location(users[-1].filename, users[-1].lineno) if users else ""


# The tracer's errors by a pattern in their text: what happened, and what was expected instead.
EXPLANATIONS = [
    (r"Data-dependent branching|Could not guard on data-dependent|GuardOnDataDependent",
     "a branch depends on the values of a tensor", "control flow that depends on shapes and Python values only"),
    (r"DynamicOutputShapeException|aten\.(nonzero|masked_select|unique\w*|repeat_interleave)\b.*\n|[Uu]nbacked",
     "the size of a tensor depends on the values of another", "sizes known from the inputs' shapes (torch.where instead of nonzero)"),
    (r"_local_scalar_dense|Tensor\.item|\.item\(\)|DataDependentOutputException",
     "a tensor's value is read into Python", "numbers that stay in tensors"),
    (r"Tensor device mismatch|same device|two devices",
     "tensors of two devices meet in one operation", "one device for parameters, buffers and inputs"),
    (r"one of the inputs with type|pytree-flattenable.*input",
     "an input is neither a tensor nor a plain Python value", "tensors, numbers, strings, None, and tuples, lists or dicts of them"),
    (r"Encountered unrecognized type|unsupported output|one of the outputs with type",
     "an output is neither a tensor nor a plain Python value", "tensors, numbers, strings, None, and tuples, lists or dicts of them"),
]


def explain(error):
    """(what happened, what was expected) for an error of the tracer."""
    text = f"{type(error).__name__}: {error}"
    for pattern, what, expected in EXPLANATIONS:
        if re.search(pattern, text):
            return what, expected
    return first_sentence(error), "a forward pass that PyTorch can trace as one graph"


def first_sentence(error):
    """The headline of the tracer's message with the explanation that follows it, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    inner = re.search(r"got \w+\(['\"](.+?)['\"]\)", str(error).replace("\n", " "))
    if inner:  # an operator refused its arguments; its own words say why
        return inner.group(1)[:300]
    headline = lines[0]
    if len(lines) > 1 and lines[1].startswith("Explanation:"):
        headline += ": " + lines[1].removeprefix("Explanation:").strip()
    return headline[:300]


def capture_error(error, model_name):
    """The one-line CaptureError for whatever the tracer raised."""
    what, expected = explain(error)
    place = place_of(error)
    at = f" at {place}" if place else ""
    return CaptureError(f"cannot capture {model_name}{at}: {what}; expected {expected}")
