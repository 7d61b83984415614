"""How every picture looks: one palette that colour-blind readers can distinguish, quiet axes."""

import io

INK = "#222222"
QUIET = "#8a8a8a"
GRID = "#e6e6e6"
WARNING = "#c23b22"

# Okabe and Ito, without yellow and black.
SERIES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#6a51a3", "#5c5c5c"]


def prepare():
    """Imports matplotlib with the house style and returns its pyplot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "xtick.color": INK,
            "ytick.color": INK,
            # Graph names are text from files, never formulas.
            "text.parse_math": False,
            "svg.fonttype": "none",
        }
    )
    return plt


def finish(figure, picture_format: str) -> bytes:
    """The figure as a file's content; equal input gives equal bytes."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(picture_format)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=picture_format, dpi=150, bbox_inches="tight", metadata=metadata)
    return buffer.getvalue()


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def bytes_scale(largest: float) -> tuple[float, str]:
    """The unit in which the largest value reads well, in powers of 1000."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if largest >= factor:
            return factor, unit
    return 1.0, "bytes"
