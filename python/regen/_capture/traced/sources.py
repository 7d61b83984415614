"""Which line of the user's code a node comes from. In the backward pass: the line whose forward operator is being differentiated."""

import sys
from types import CodeType

import torch

from regen._capture.trace_errors import is_user_file, short_location


class Sources:
    """Looks at the Python stack for every operator, so what is known of a file is kept."""

    def __init__(self) -> None:
        self.users: dict[CodeType, bool] = {}
        self.of_node: dict[int, str] = {}  # sequence number of autograd's node -> line of the forward pass

    def here(self) -> str:
        """Of the operator that is being dispatched."""
        node = torch._C._current_autograd_node()
        if node is not None:
            return self.of_node.get(node._sequence_nr(), "")
        source = self.innermost()
        self.of_node[torch.autograd._get_sequence_nr() - 1] = source  # pyright: ignore[reportPrivateImportUsage]
        return source

    def innermost(self) -> str:
        """The innermost line of the user's code."""
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            known = self.users.get(code)
            if known is None:
                known = self.users[code] = is_user_file(code.co_filename)
            if known:
                return short_location(code.co_filename, frame.f_lineno)
            frame = frame.f_back
        return ""
