"""Draws docs/figures/*.svg from results/*.csv. Equal rows give equal pictures."""

import hashlib
import json
import sys

import results_data as data

sys.path.insert(0, str(data.ROOT / "python"))

import results_published as published

from regen_plot import style

MODELS = ["ResNet-50", "GPT-2 medium", "U-Net", "MobileNetV2", "GoogLeNet", "VGG-16"]


def number(text):
    return float(text.lstrip("<").replace(",", ""))


def overhead_rows():
    """Time over eager against the fraction of eager's reserved bytes: regen, and checkpointing beside it."""
    kept = data.latest(data.where(data.read("h200_keep_everything"), layout="contiguous"), "model")
    planned = [row for row in data.where(data.read("h200_overhead"), layout="contiguous", fraction_of="eager reserved")
               if row["cuda_graphs"] == "no"]
    planned = data.latest(planned, "model", "fraction")
    block = data.latest(data.where(data.read("h200_checkpoint"), layout="contiguous"), "model")
    ours, theirs = {}, {}
    for row in kept:
        fraction = number(row["regen_reserved_gib"]) / number(row["eager_reserved_gib"])
        ours.setdefault(row["model"], []).append((round(fraction, 3), round((number(row["ratio"]) - 1) * 100, 2)))
    for row in planned:
        ours.setdefault(row["model"], []).append((number(row["fraction"]), number(row["over_eager_percent"])))
    for row in block:
        theirs[row["model"]] = (number(row["fraction_of_eager_reserved"]), number(row["over_eager_percent"]))
    return {"ours": {model: sorted(points) for model, points in ours.items()}, "theirs": theirs}


def draw_overhead(plt, rows):
    figure, axes = plt.subplots(figsize=(7.5, 4.2))
    for colour, model in zip(style.SERIES, MODELS):
        points = rows["ours"].get(model, [])
        if points:
            axes.plot(*zip(*points), "-o", color=colour, label=model, markersize=5)
        if model in rows["theirs"]:
            axes.plot(*rows["theirs"][model], "D", color=colour, markerfacecolor="white", markersize=7)
    axes.plot([], [], "o-", color=style.INK, label="regen")
    axes.plot([], [], "D", color=style.INK, markerfacecolor="white", label="checkpoint per block")
    axes.set_xlabel("reserved bytes, fraction of eager PyTorch's")
    axes.set_ylabel("step time over eager, %")
    axes.set_title("Time for memory on an H200")
    axes.grid(color=style.GRID)
    axes.set_xlim(0.28, 1.0)
    axes.set_ylim(-1, 33)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def monet_rows():
    rows = {}
    for row in data.latest(data.read("h200_monet"), "model", "budget_gib"):
        if row["status"] == "trained":
            rows.setdefault(row["model"], []).append(
                (number(row["budget_gib"]), number(row["over_eager_percent"]), number(row["published_overhead_percent"])))
    return {model: sorted(points) for model, points in rows.items()}


def draw_monet(plt, rows):
    models = [model for model in MODELS if model in rows]
    figure, panels = plt.subplots(1, len(models), figsize=(2.4 * len(models), 2.8), sharey=True)
    for axes, model in zip(panels, models):
        budgets, ours, theirs = zip(*rows[model])
        axes.plot(budgets, ours, "-o", color=style.SERIES[0], markersize=4, label="regen, H200, bits of eager")
        axes.plot(budgets, theirs, "--s", color=style.SERIES[1], markersize=4, label="MONeT as published, P100")
        axes.set_title(model, fontsize=10)
        axes.set_xlabel("budget, GiB")
        axes.set_xticks([6, 8, 10])
        axes.grid(color=style.GRID)
    panels[0].set_ylabel("step time over PyTorch, %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="lower center", ncol=2, bbox_to_anchor=(0.5, -0.22))
    return figure


def batch_rows():
    rows = [row for row in data.where(data.read("max_batch"), accounting="plain", grid="") if row["max_batch"] != "none"]
    table = {}
    for row in data.latest(rows, "network", "planner"):
        table.setdefault(row["network"], {})[row["planner"]] = number(row["max_batch"])
    return {network: {planner: value / found["keep_all"] for planner, value in found.items()}
            for network, found in table.items() if "keep_all" in found}


def draw_batch(plt, rows):
    planners = ["chen_sqrt", "chen_greedy", "griewank", "checkmate"]
    networks = ["VGG19", "vgg_unet", "fcn_8", "segnet", "MobileNet", "ResNet50"]
    figure, axes = plt.subplots(figsize=(7.5, 3.4))
    for place, planner in enumerate(planners):
        values = [rows.get(network, {}).get(planner, 0) for network in networks]
        bars = axes.bar([x + (place - 1.5) * 0.2 for x in range(len(networks))], values, 0.19, color=style.SERIES[place], label=planner)
        if planner == "checkmate":
            axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize=8, color=style.INK)
    axes.axhline(1, color=style.QUIET, linewidth=1)
    axes.set_xticks(range(len(networks)), networks)
    axes.set_ylabel("batch over that of keep_all")
    axes.set_title("Largest batch in 16e9 bytes, at most one extra forward pass")
    axes.legend(frameon=False, fontsize=9, ncol=4, loc="upper left")
    axes.set_ylim(0, 10)
    return figure


def scale_rows():
    rows = {}
    for row in data.latest(data.read("scale"), "graph", "ops", "fraction"):
        kind = "layered random" if row["graph"].startswith("layered") else "captured step"
        if row["graph"] == "layered random":
            continue  # an earlier run of the same sizes
        rows.setdefault(f"{kind}, {int(float(row['fraction']) * 100)} %", []).append((number(row["ops"]), number(row["gap_percent"])))
    return {name: sorted(points) for name, points in rows.items()}


def draw_scale(plt, rows):
    figure, axes = plt.subplots(figsize=(7.5, 3.4))
    for name in sorted(rows):
        kind, fraction = name.split(", ")
        colour = style.SERIES[["30 %", "50 %", "70 %"].index(fraction)]
        captured = kind == "captured step"
        axes.plot(*zip(*rows[name]), "o" if captured else "--s", color=colour, markersize=6 if captured else 4, label=name)
    axes.set_xscale("log")
    axes.set_xticks([1000, 3000, 10000, 30000], ["1,000", "3,000", "10,000", "30,000"])
    axes.minorticks_off()
    axes.set_xlabel("ops of the training step")
    axes.set_ylabel("gap to the bound, %")
    axes.set_title("auto after 20 s, by fraction of what keeping everything takes")
    axes.grid(color=style.GRID)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def request_rows():
    rows = {}
    for row in data.latest(data.read("sharing_requests"), "beside", "arrivals", "way"):
        rows.setdefault(row["arrivals"], {}).setdefault(row["way"], {})[row["beside"]] = number(row["p95_ms"])
    return rows


def draw_requests(plt, rows):
    ways = ["regen", "regen under MPS", "free processes", "MPS alone", "threads with stream priority"]
    beside = ["ResNet-50 b64", "VGG-16 b64", "GPT-2 medium b8"]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4))
    for axes, arrivals in zip(panels, ["one after the other", "Poisson"]):
        alone = rows[arrivals]["alone, under a plan"]["nothing"]
        for place, way in enumerate(ways):
            heights = [rows[arrivals][way][job] for job in beside]
            axes.bar([x + (place - 2) * 0.16 for x in range(len(beside))], heights, 0.15, color=style.SERIES[place], label=way)
        axes.axhline(alone, color=style.INK, linewidth=1, linestyle=":", label="alone")
        axes.set_xticks(range(len(beside)), [job.replace(" b", "\nbatch ") for job in beside], fontsize=9)
        axes.set_title(f"requests {arrivals}" if arrivals != "Poisson" else "Poisson arrivals at 30 % load", fontsize=10)
    panels[0].set_ylabel("95th percentile, ms")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="lower center", ncol=3, bbox_to_anchor=(0.5, -0.22))
    return figure


FIGURES = {
    "h200_overhead": (overhead_rows, draw_overhead),
    "h200_monet": (monet_rows, draw_monet),
    "max_batch": (batch_rows, draw_batch),
    "scale": (scale_rows, draw_scale),
    "sharing_requests": (request_rows, draw_requests),
    **published.FIGURES,
}


def digest(rows):
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def mark(rows):
    """A comment in the file that says which rows it was drawn from, so that --check needs no equal matplotlib."""
    return f"<!-- rows {digest(rows)} -->"


def draw_all(folder):
    plt = style.prepare()
    plt.rcParams["svg.hashsalt"] = "regen"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (rows_of, draw) in FIGURES.items():
        rows = rows_of()
        figure = draw(plt, rows)
        text = style.finish(figure, "svg").decode()
        plt.close(figure)
        (folder / f"{name}.svg").write_text(text.rstrip("\n") + "\n" + mark(rows) + "\n")


def stale(folder):
    """One line for each figure that was not drawn from the present rows."""
    found = []
    for name, (rows_of, _) in FIGURES.items():
        path = folder / f"{name}.svg"
        if not path.exists() or mark(rows_of()) not in path.read_text():
            found.append(f"docs/figures/{name}.svg is not what results/*.csv give: run tools/results.py")
    return found
