"""Which line of the user's code a node comes from, and in which module it runs. In the backward pass: those of the forward operator that is being
differentiated.
"""

import sys
from types import CodeType
from typing import NamedTuple

import torch

from regen._capture.trace_errors import is_user_file, short_location

MODULE_CALL = torch.nn.Module._call_impl.__code__


class Source(NamedTuple):
    """Of a node."""

    line: str  # "model.py:31"; empty: not known
    module: str | None  # the path of the innermost module; None: it runs in none


class Sources:
    """Looks at the Python stack for every operator, so what is known of a file is kept."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.users: dict[CodeType, bool] = {}
        self.of_node: dict[int, Source] = {}  # sequence number of autograd's node -> of the forward pass
        # A module in several places has the first path.
        self.paths = {id(module): path for path, module in reversed(list(model.named_modules(remove_duplicate=False)))}

    def here(self) -> Source:
        """Of the operator that is being dispatched."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self.of_node.get(node._sequence_nr(), Source("", None))
        source = self.innermost()
        self.of_node[torch.autograd._get_sequence_nr() - 1] = source  # pyright: ignore[reportPrivateImportUsage]
        return source

    def innermost(self) -> Source:
        """The innermost line of the user's code, and the innermost module."""
        frame = sys._getframe(2)
        line: str | None = None
        module: str | None = None
        while frame is not None and (line is None or module is None):
            code = frame.f_code
            if line is None and self.is_user(code):
                line = short_location(code.co_filename, frame.f_lineno)
            if module is None and code is MODULE_CALL:
                module = self.paths.get(id(frame.f_locals["self"]))
            frame = frame.f_back
        return Source(line or "", module)

    def is_user(self, code: CodeType) -> bool:
        """Of a file of the user."""
        known = self.users.get(code)
        if known is None:
            known = self.users[code] = is_user_file(code.co_filename)
        return known
