"""Cost against memory: for each planner a step line of the cheapest plan within a peak."""

from regen_plot import style


def frontier(points: list) -> list:
    """The running minimum of cost over growing memory, as corners of a step line.

    >>> frontier([[3, 1.0], [1, 2.0], [2, 2.5], [2, 1.5]])
    [(1, 2.0), (2, 1.5), (3, 1.0)]
    """
    corners = []
    for memory, ratio in sorted(tuple(point) for point in points):
        if corners and ratio >= corners[-1][1]:
            continue
        if corners and corners[-1][0] == memory:
            corners.pop()
        corners.append((memory, ratio))
    return corners


def lines(data: dict) -> list:
    """(planner, x in GB, y, colour) with each line drawn on to the right edge."""
    right = right_edge(data)
    result = []
    for index, series in enumerate(data["series"]):
        corners = frontier(series["points"])
        if not corners:
            continue
        xs = [memory / 1e9 for memory, _ in corners] + [right]
        ys = [ratio for _, ratio in corners] + [corners[-1][1]]
        result.append((series["planner"], xs, ys, style.SERIES[index % len(style.SERIES)]))
    return result


def right_edge(data: dict) -> float:
    peaks = [point[0] / 1e9 for series in data["series"] for point in series["points"]]
    low, high = min(peaks, default=0.0), max(peaks, default=1.0)
    return high + 0.06 * max(high - low, 0.02 * high)


def axis_range(data: dict) -> tuple[float, float]:
    peaks = [point[0] / 1e9 for series in data["series"] for point in series["points"]]
    right = right_edge(data)
    left = min(peaks, default=0.0)
    return left - 0.06 * (right - left), right


def device_line(data: dict):
    """(GB, label) of the device's memory, with a hint when it lies outside the picture."""
    device = data.get("device")
    if not device:
        return None
    memory = device["memory_bytes"] / 1e9
    return memory, f"{device['name']}: {memory:.3g} GB"


def cost_range(data: dict) -> tuple[float, float]:
    """Cut off very expensive plans (keeping only the last node, say) so that the rest stays legible."""
    ratios = sorted(r for s in data["series"] for _, r in frontier(s["points"]))
    high = ratios[-1] if ratios else 1.5
    if high > 3 and ratios and ratios[len(ratios) // 2] < 2:
        high = 2.5
    low = min(1.0, ratios[0]) if ratios else 1.0
    room = max(high - low, 0.1)
    return low - 0.08 * room, high + 0.12 * room


def draw(data: dict, picture_format: str) -> bytes:
    if picture_format == "html":
        return draw_html(data)
    plt = style.prepare()
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    for planner, xs, ys, colour in lines(data):
        axes.step(xs, ys, where="post", color=colour, linewidth=1.8, label=planner)
        axes.plot(xs[:-1], ys[:-1], "o", color=colour, markersize=3.5)
    axes.axhline(1, color=style.QUIET, linestyle="--", linewidth=1.1, label="keep everything")
    axes.set_xlim(*axis_range(data))
    axes.set_ylim(*cost_range(data))
    draw_device(axes, data)
    axes.grid(color=style.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel("peak memory [GB]")
    axes.set_ylabel("cost / cost of keeping everything")
    axes.set_title(style.shortened(data["title"], 60), fontsize=11)
    axes.legend(frameon=False, fontsize=9)
    return style.finish(figure, picture_format)


def draw_device(axes, data: dict) -> None:
    device = device_line(data)
    if device is None:
        return
    memory, label = device
    left, right = axes.get_xlim()
    if memory > right and memory - left < 1.6 * (right - left):
        axes.set_xlim(left, memory + 0.05 * (memory - left))
        left, right = axes.get_xlim()
    if not left <= memory <= right:
        side = "right" if memory > right else "left"
        arrow = f"{label} →" if side == "right" else f"← {label}"
        axes.annotate(
            arrow,
            (1 if side == "right" else 0, 0.03),
            xycoords="axes fraction",
            ha=side,
            fontsize=9,
            color=style.WARNING,
        )
        return
    axes.axvline(memory, color=style.WARNING, linestyle=":", linewidth=1.5)
    near_right = memory > left + 0.7 * (right - left)
    axes.annotate(
        label,
        (memory, 0.03),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if near_right else 5, 0),
        textcoords="offset points",
        ha="right" if near_right else "left",
        fontsize=9,
        color=style.WARNING,
    )


def draw_html(data: dict) -> bytes:
    import plotly.graph_objects as go

    figure = go.Figure()
    for planner, xs, ys, colour in lines(data):
        figure.add_trace(
            go.Scatter(
                x=xs,
                y=ys,
                name=planner,
                mode="lines+markers",
                line={"shape": "hv", "color": colour, "width": 2.5},
                marker={"size": [6] * (len(xs) - 1) + [0]},
                hovertemplate="%{x:.4g} GB, %{y:.4f} x<extra>" + planner + "</extra>",
            )
        )
    figure.add_hline(y=1, line={"dash": "dash", "color": style.QUIET},
                     annotation_text="keep everything", annotation_position="bottom right")
    device = device_line(data)
    if device is not None:
        figure.add_vline(x=device[0], line={"dash": "dot", "color": style.WARNING},
                         annotation_text=device[1])
    figure.update_layout(
        title=data["title"],
        template="plotly_white",
        xaxis_title="peak memory [GB]",
        yaxis_title="cost / cost of keeping everything",
        xaxis_range=axis_range(data),
        yaxis_range=cost_range(data),
    )
    return figure.to_html(include_plotlyjs=True, full_html=True).encode()
