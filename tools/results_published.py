"""Figures of the published systems: what the papers print beside what regen gives, from results/*.csv. Ours is filled, theirs is hollow."""

import re

import results_data as data

from regen_plot import style

OURS, THEIRS, OTHER = style.SERIES[0], style.SERIES[5], style.SERIES[7]
HOLLOW = {"facecolor": "white", "edgecolor": THEIRS, "linewidth": 1.2}


def numbers(text):
    """The numbers of a text such as `18 to 34 % on a V100`, without the name of the device."""
    return [float(word) for word in re.findall(r"\d+(?:\.\d+)?", text.replace("V100", ""))]


def legend(figure, axes, bottom, ours="regen", theirs="as published"):
    axes.plot([], [], "s", color=OURS, label=ours)
    axes.plot([], [], "s", markerfacecolor="white", markeredgecolor=THEIRS, label=theirs)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="lower center", ncol=len(labels), bbox_to_anchor=(0.5, bottom))


def pair_of_bars(axes, labels, ours, theirs, **text):
    """Two bars for each label."""
    places = range(len(labels))
    axes.bar([x - 0.2 for x in places], theirs, 0.38, **HOLLOW)
    axes.bar([x + 0.2 for x in places], ours, 0.38, color=OURS)
    axes.set_xticks(places, labels, fontsize=8, **text)


def lying_bars(axes, rows):
    """The same from left to right; `rows`: (label, ours, theirs or None)."""
    for place, (_, ours, theirs) in enumerate(rows):
        axes.barh(place - 0.2, theirs or 0, 0.38, **(HOLLOW if theirs else {}))
        axes.barh(place + 0.2, ours, 0.38, color=OURS)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=8)
    axes.invert_yaxis()


def points_in_ranges(axes, rows):
    """Published ranges as hollow bars, ours as points on them; `rows`: (label, ours, (least, most))."""
    for place, (_, ours, (least, most)) in enumerate(rows):
        axes.barh(place, most - least, 0.62, left=least, **HOLLOW)
        axes.plot(ours, [place] * len(ours), "o", color=OURS, markersize=4.5)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=8)
    axes.invert_yaxis()


def checkmate_rows():
    """Figure 5's batches that are published, and cost and peak of the heuristics on VGG19."""
    batches = [row for row in data.read("max_batch") if row["published"].isdigit() and not row["grid"] and row["accounting"] == "checkmate"]
    batches += [row for row in data.read("max_batch") if row["planner"] == "checkmate" and row["published"].isdigit()]
    shown = ("keep_all", "chen_sqrt", "chen_greedy", "griewank", "last_node")
    plans = [row for row in data.latest(data.read("vgg19_plans"), "planner") if row["planner"] in shown]
    base = float(data.one(plans, planner="keep_all")["cost"])
    return {
        "batches": [(f"{row['network']}\n{row['planner']}", int(row["max_batch"]), int(row["published"])) for row in batches],
        "plans": [(row["planner"], float(row["activation_peak_bytes"]) / 1e6, float(row["cost"]) / base, float(row["published_peak_bytes"]) / 1e6,
                   float(row["published_cost"]) / base) for row in plans]}


def draw_checkmate(plt, rows):
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), gridspec_kw={"width_ratios": [1.25, 1]})
    labels, ours, theirs = zip(*rows["batches"])
    pair_of_bars(left, labels, ours, theirs, rotation=45, ha="right")
    left.set_ylabel("largest batch")
    left.set_title("Figure 5: 16e9 bytes, one extra forward pass", fontsize=10)
    for name, peak, cost, their_peak, their_cost in rows["plans"]:
        right.plot(their_peak, their_cost, "s", markerfacecolor="white", markeredgecolor=THEIRS, markersize=9)
        right.plot(peak, cost, "o", color=OURS, markersize=4.5)
        right.annotate(name, (their_peak, their_cost), textcoords="offset points", xytext=(7, 3), fontsize=8)
    right.set_yscale("log")
    right.set_yticks([1, 2, 4], ["1", "2", "4"])
    right.minorticks_off()
    right.set_xlim(45, 95)
    right.set_xlabel("activations at the peak, MB")
    right.set_ylabel("cost over keep_all's")
    right.set_title("VGG19, batch 1, in the artifact's accounting", fontsize=10)
    right.grid(color=style.GRID)
    legend(figure, left, -0.32)
    return figure


def monet_rows():
    rows = {}
    for row in data.latest(data.read("monet"), "network", "mode", "budget_gib"):
        theirs = float(row["published_ms"]) if row["published_ms"] else None
        rows.setdefault(row["network"], {}).setdefault(row["mode"], []).append((float(row["budget_gib"]), float(row["ours_ms"]), theirs))
    return {network: {mode: sorted(points) for mode, points in modes.items()} for network, modes in rows.items()}


def draw_monet(plt, rows):
    figure, panels = plt.subplots(1, len(rows), figsize=(9, 3.2))
    for axes, (network, modes) in zip(panels, sorted(rows.items())):
        for colour, (mode, points) in zip(style.SERIES, sorted(modes.items())):
            axes.plot([p[0] for p in points], [p[1] for p in points], "-o", color=colour, markersize=4, label=mode if network == min(rows) else None)
            axes.plot([p[0] for p in points if p[2]], [p[2] for p in points if p[2]], "s", markerfacecolor="none", markeredgecolor=colour, markersize=9)
        axes.set_title(network, fontsize=10)
        axes.set_xlabel("budget, GiB")
        axes.grid(color=style.GRID)
    panels[0].set_ylabel("objective, ms")
    panels[0].plot([], [], "o", color=style.INK, markersize=4, label="regen, 60 s")
    panels[0].plot([], [], "s", markerfacecolor="none", markeredgecolor=style.INK, markersize=9, label="Gurobi, 24 h, as published")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="lower center", ncol=4, bbox_to_anchor=(0.5, -0.22))
    return figure


def lower_sets_rows():
    rows = data.latest(data.where(data.read("lower_sets_peaks"), quantity="lowest peak at the paper's batch"), "graph")
    return [(row["graph"], float(row["ours"]), float(row["published"])) for row in rows]


def draw_lower_sets(plt, rows):
    figure, axes = plt.subplots(figsize=(7.5, 2.8))
    labels, ours, theirs = zip(*rows)
    pair_of_bars(axes, labels, ours, theirs)
    axes.set_ylabel("GB")
    axes.set_title("Lowest peak at the paper's batch: regen simulated, theirs measured with workspaces", fontsize=10)
    legend(figure, axes, -0.14)
    return figure


def str_rows():
    """Speed of `str` over `capuchin`: the ranges over a sweep of batches."""
    rows = []
    for row in data.latest(data.where(data.read("hybrid_sweeps"), device="v100-32"), "network"):
        loose = [float(word) for word in re.findall(r"\d\.\d{3}", row["str_over_capuchin_at_22gb"])]
        tight = [float(word) for word in re.findall(r"\d\.\d{3}", row["str_over_capuchin_tight"])]
        theirs = [float(word) for word in re.findall(r"\d\.\d{2}", row["published"])]
        rows.append((f"{row['network']}, batch {row['batches']}", [min(loose), max(loose)], tight, [min(theirs), max(theirs)]))
    return rows


def draw_str(plt, rows):
    figure, axes = plt.subplots(figsize=(7.5, 2.2))
    points_in_ranges(axes, [(label, loose, theirs) for label, loose, _, theirs in rows])
    for place, (_, loose, tight, _) in enumerate(rows):
        axes.plot(loose, [place] * 2, "-", color=OURS, linewidth=2)
        axes.plot(tight, [place] * len(tight), "D", color=OTHER, markersize=5)
    axes.axvline(1, color=style.QUIET, linewidth=1)
    axes.set_xlabel("speed of str over capuchin")
    axes.set_title("Sweeps of batches: simulated with overlap of copies (regen), measured in TensorFlow (STR)", fontsize=10)
    axes.plot([], [], "D", color=OTHER, label="regen, tight budget")
    legend(figure, axes, -0.3, ours="regen at 22 GB, least and most")
    return figure


def short(text):
    for long, name in (("DenseNet-121", "DenseNet"), ("MobileNetV2", "MobileNet"), (" inference", ", inference"), (" training", ", training")):
        text = text.replace(long, name)
    return text


def switchflow_ranges():
    """By figure: (what, our points, the published range)."""
    idle, shared, turns = {}, {}, {}
    for row in data.latest(data.where(data.read("switchflow_fig3"), way="eager"), "model"):
        ranges = numbers(row["published"])
        for kind, least, most in (("training", *ranges[:2]), ("inference", *ranges[2:])):
            idle.setdefault((kind, least, most), []).append(float(row[f"{kind}_idle_percent"]))
    for row in data.latest(data.read("shared_input"), "jobs", "batch"):
        count = "three" if row["jobs"].count(",") == 2 else "two"
        kind = row["jobs"].partition(" of ")[0] if row["jobs"].startswith("two") else f"{count} networks"
        shared.setdefault((kind, *numbers(row["published"])), []).append(float(row["gain_percent"]))
    for row in data.latest(data.read("switchflow_fig10"), "inference", "second"):
        turns.setdefault((short(row["second"]), *numbers(row["published"])), []).append(float(row["gain_percent"]))
    return [[(key[0], points, key[1:]) for key, points in rows.items()] for rows in (idle, shared, turns)]


def switchflow_rows():
    alone, *pairs = data.latest(data.read("switchflow_fig2"), "way")
    published = {row["way"]: sum(numbers(row["published"])) / numbers(alone["published"])[0] for row in pairs if row["published"]}
    idle, shared, turns = switchflow_ranges()
    return {
        "trainings": [(row["way"], float(row["sum_over_alone"]), published.get(row["way"])) for row in pairs],
        "requests": [(short(f"{row['requests']} beside {row['training']}"), float(row["threads_over_this"]), float(row["published_threads_over_switchflow"]))
                     for row in data.latest(data.where(data.read("switchflow_fig6"), way="regen"), "training", "requests")
                     if row["threads_over_this"] and row["published_threads_over_switchflow"]],
        "state": [(row["model"], float(row["leave_all_ms"]), float(row["published_ms"]))
                  for row in data.latest(data.read("state_move"), "model") if row["leave_all_ms"] and row["published_ms"]],
        "idle": idle, "shared": shared, "turns": turns}


def draw_switchflow(plt, rows):
    layout = {"hspace": 0.45, "wspace": 0.55, "height_ratios": [1.5, 1, 0.8]}
    figure, panels = plt.subplots(3, 2, figsize=(9.5, 8.5), gridspec_kw=layout)
    titles = {
        "requests": "Figure 6: 95th percentile, threads over this", "state": "Table 1: state of a training leaves, ms",
        "trainings": "Figure 2: two trainings, sum over alone", "idle": "Figure 3: idle time within a step, %",
        "shared": "Figures 8, 9: gain of one reader, %", "turns": "Figure 10: gain of interleaving, %"}
    for axes, (key, title) in zip(panels.flat, titles.items()):
        (points_in_ranges if key in ("idle", "shared", "turns") else lying_bars)(axes, rows[key])
        axes.set_title(title, fontsize=10)
        axes.grid(color=style.GRID, axis="x")
        axes.set_axisbelow(True)
    legend(figure, panels[0][0], 0.0, ours="regen, H200", theirs="as published, other cards")
    return figure


FIGURES = {
    "published_checkmate": (checkmate_rows, draw_checkmate),
    "published_lower_sets": (lower_sets_rows, draw_lower_sets),
    "published_monet": (monet_rows, draw_monet),
    "published_str": (str_rows, draw_str),
    "published_switchflow": (switchflow_rows, draw_switchflow),
}
