"""A plan as a picture: what every op does in every stage, and the memory beneath it."""

from regen_plot import style

# Letter in the data, label in the legend, colour.
CELLS = [
    (".", "", "#ffffff"),
    ("h", "on the host", "#f3e3c3"),
    ("k", "kept", "#b9d3e6"),
    ("m", "copy begins", "#e69f00"),
    ("c", "computed", "#1f4e79"),
    ("r", "recomputed", "#d55e00"),
]
MOST_NAMES = 80


def draw(data: dict, picture_format: str) -> bytes:
    plt = style.prepare()
    ops = data["ops"]
    height = min(9.0, max(3.4, 0.13 * ops if data["op_names"] else 6.0))
    figure, (schedule, memory) = plt.subplots(
        2,
        1,
        sharex=True,
        figsize=(9.5, height + 2.4),
        gridspec_kw={"height_ratios": [height, 2.2], "hspace": 0.08},
    )
    draw_grid(schedule, data)
    draw_memory(memory, data)
    schedule.set_title(title(data), fontsize=11, pad=24)
    return style.finish(figure, picture_format)


def title(data: dict) -> str:
    planner = f" by {data['planner']}" if data["planner"] else ""
    runs = f"{data['recomputed']:,} recomputation" + ("" if data["recomputed"] == 1 else "s")
    return (
        f"{style.shortened(data['title'], 40)}{planner}: {runs}, "
        f"{100 * data['overhead']:+.1f} % cost"
    )


def draw_grid(axes, data: dict) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    letters = "".join(letter for letter, _, _ in CELLS)
    rows = [[letters.index(cell) for cell in row] for row in data["grid"]]
    ops = data["ops"]
    axes.imshow(
        rows,
        cmap=ListedColormap([colour for _, _, colour in CELLS]),
        vmin=-0.5,
        vmax=len(CELLS) - 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=(0, ops, ops, 0),
    )
    if ops <= MOST_NAMES:
        draw_cell_borders(axes, ops)
    label_ops(axes, data)
    used = set("".join(data["grid"]))
    handles = [
        Patch(facecolor=colour, edgecolor=style.QUIET, linewidth=0.4, label=label)
        for letter, label, colour in CELLS
        if label and letter in used
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncol=len(handles),
        frameon=False,
        fontsize=9,
        handlelength=1.1,
        columnspacing=1.4,
        borderpad=0.2,
    )


def draw_cell_borders(axes, ops: int) -> None:
    edges = range(ops + 1)
    axes.hlines(edges, 0, ops, color="white", linewidth=0.5)
    axes.vlines(edges, 0, ops, color="white", linewidth=0.5)


def label_ops(axes, data: dict) -> None:
    names = data["op_names"]
    axes.set_ylabel("op")
    axes.tick_params(axis="both", length=0)
    if names:
        size = 7 if len(names) <= 45 else 5.5
        axes.set_yticks([i + 0.5 for i in range(len(names))])
        axes.set_yticklabels([style.shortened(name, 24) for name in names], fontsize=size)
        axes.set_ylabel("")
    # Where backward begins, say: the picture turns there.
    for phase, start in data["phases"][1:]:
        if phase == "loss" and len(data["phases"]) > 2:
            continue
        axes.axhline(start, color=style.QUIET, linewidth=0.7, linestyle=(0, (4, 3)))
        axes.axvline(start, color=style.QUIET, linewidth=0.7, linestyle=(0, (4, 3)))
        axes.annotate(
            phase,
            (1, start),
            xycoords=("axes fraction", "data"),
            xytext=(4, -2),
            textcoords="offset points",
            va="top",
            rotation=-90,
            fontsize=8,
            color=style.QUIET,
            annotation_clip=False,
        )


def draw_memory(axes, data: dict) -> None:
    budget = data["budget_bytes"]
    largest = max(data["peak_bytes"], budget or 0)
    factor, unit = style.bytes_scale(largest)
    positions = [point[0] for point in data["memory"]] + [data["ops"]]
    values = [point[1] / factor for point in data["memory"]]
    values.append(values[-1] if values else 0)
    fixed = data["fixed_bytes"] / factor
    top = largest / factor
    # Where the fixed bytes fill most of the picture, the rest of it is what matters.
    bottom = fixed - 0.25 * (top - fixed) if fixed > 0.5 * top else 0
    axes.fill_between(positions, fixed, values, step="post", color="#b9d3e6", linewidth=0)
    axes.step(positions, values, where="post", color="#1f4e79", linewidth=1.1)
    if fixed > 0:
        axes.axhspan(bottom, fixed, color="#dddddd", linewidth=0)
        label = f"fixed {fixed:.3g} {unit}"
        middle = (bottom + fixed) / 2
        if fixed - bottom > 0.1 * (top - bottom):
            axes.text(0.01 * data["ops"], middle, label, fontsize=8, color="#555555", va="center")
    mark_peak(axes, data, factor, unit)
    if budget is not None:
        draw_budget(axes, data, factor, unit)
    axes.set_ylim(bottom, top + 0.22 * (top - bottom) if top > bottom else bottom + 1)
    axes.tick_params(labelsize=9)
    axes.set_xlim(0, data["ops"])
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("stage (ends with the first run of an op)")
    axes.set_ylabel(f"memory [{unit}]")


def highest(data: dict) -> list:
    return max(data["memory"], key=lambda point: point[1])


def draw_budget(axes, data: dict, factor: float, unit: str) -> None:
    level = data["budget_bytes"] / factor
    axes.axhline(level, color=style.WARNING, linewidth=1.2, linestyle="--")
    # On the side where the peak is not.
    right = not data["memory"] or highest(data)[0] < 0.5 * data["ops"]
    axes.annotate(
        f"budget {level:.4g} {unit}",
        (1 if right else 0, level),
        xycoords=("axes fraction", "data"),
        xytext=(-4 if right else 4, 3),
        textcoords="offset points",
        ha="right" if right else "left",
        fontsize=8,
        color=style.WARNING,
    )


def mark_peak(axes, data: dict, factor: float, unit: str) -> None:
    if not data["memory"]:
        return
    position, peak = highest(data)
    budget = data["budget_bytes"] or 0
    # Above the budget's line if that is near, so that it does not run through the text.
    near = peak <= budget < peak + 0.2 * (peak - data["fixed_bytes"])
    right = position < 0.5 * data["ops"]
    axes.plot([position], [peak / factor], marker="o", markersize=4, color="#1f4e79")
    axes.annotate(
        f"peak {peak / factor:.4g} {unit}",
        (position, (budget if near else peak) / factor),
        xytext=(6 if right else -6, 3),
        textcoords="offset points",
        ha="left" if right else "right",
        fontsize=8,
    )
