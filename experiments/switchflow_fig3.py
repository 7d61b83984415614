"""SwitchFlow, Figure 3: the fraction of a step in which the device does nothing, for nine networks: training at batch 32, inference at 128.

Ways: plain PyTorch (eager), under a plan of regen, and the same with cuda_graphs=True. The device's time is that of all kernels and copies of a
step (their union, by torch's profiler); the step's is taken without the profiler. Batches lie ready on the device, so input costs nothing
here; in the paper it is read by 32 threads. On a CPU the operators take the place of the kernels.
"""

import common
import switchflow
from common import style
from share_crew import Worker, work
from switchflow import NAMES, percent

NETWORKS = [name for name in NAMES if name not in ("nasnet_large", "nmt")]
# kind -> (batch, the range of the published bars)
KINDS = {"train": (32, "10-45 %"), "infer": (128, "43-92 % (V100), 20-92 % (2080 Ti)")}
WAYS = {"eager": dict(planned=False), "regen": dict(planned=True), "captured": dict(planned=True, cuda_graphs=True)}
COLUMNS = ["model", "kind", "batch", "way", "step_ms", "busy_ms", "idle_share", "steps"]


def measure(options, rows):
    worker = Worker(options)
    try:
        for model in options.models:
            for kind, (published_batch, _) in KINDS.items():
                batch = switchflow.batch(options, published_batch)
                for way in options.ways:
                    spec = work(kind, model, batch, **WAYS[way])
                    worker.do("prepare", spec)
                    found, = worker.do("idle", spec, seconds=options.seconds)
                    worker.do("forget")
                    rows.add(model=model, kind=kind, batch=batch, way=way, **found)
    finally:
        worker.close()


def draw(options, rows):
    plt = style.prepare()
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), sharey=True)
    width = 0.8 / len(options.ways)
    for axis, kind in zip(axes, KINDS):
        for index, way in enumerate(options.ways):
            shares = [100 * rows.find(model=model, kind=kind, way=way).get("idle_share", 0) for model in options.models]
            axis.bar([place + index * width for place in range(len(shares))], shares, width, label=way, color=style.SERIES[index])
        axis.set_xticks([place + 0.4 for place in range(len(options.models))], [NAMES[model] for model in options.models], rotation=45)
        axis.set_title(f"{kind}, batch {KINDS[kind][0]}")
    axes[0].set_ylabel("idle, % of a step")
    axes[1].legend(frameon=False)
    common.save(figure, options.out, "switchflow_fig3.png")


def main():
    takes = "about 90 s for the default networks, 3 minutes for all nine (--models with their names)"
    parser = switchflow.parser(__doc__, takes, 0.5, [*NETWORKS[:4], "mobilenet_v2"], tuple(WAYS))
    options = switchflow.parse(parser)
    rows = switchflow.Rows(options.out, "switchflow_fig3.csv", COLUMNS)
    measure(options, rows)
    for kind, (_, published) in KINDS.items():
        common.print_table(
            f"Idle share of a step, {kind}; published for all networks: {published}",
            ["network", *options.ways, *(f"{way}: ms of a step" for way in options.ways)],
            [[NAMES[model], *(percent(rows.find(model=model, kind=kind, way=way)["idle_share"]) for way in options.ways),
              *(switchflow.number(rows.find(model=model, kind=kind, way=way)["step_ms"], 2) for way in options.ways)]
             for model in options.models])
    rows.done()
    draw(options, rows)


if __name__ == "__main__":
    main()
