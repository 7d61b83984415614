"""SwitchFlow, Figure 9: what two and three inference jobs with different networks gain by one shared input, at batches of 32, 64 and 128.

    python experiments/switchflow_fig9.py --device cuda        # 100 s on an H200 for one of the batches, with --cores 6

The published ranges are those of its pairs and triples on a V100.
"""

import input_gains

PUBLISHED = {(2, 32): (7, 46), (2, 64): (22, 48), (2, 128): (36, 69), (3, 32): (22, 53), (3, 64): (37, 61), (3, 128): (50, 74)}
GROUPS = [["resnet50", "mobilenet_v2"], ["resnet50", "googlenet"], ["resnet50", "mobilenet_v2", "googlenet"]]


def main():
    options = input_gains.parse(__doc__, seconds=1.0, bound=300, batches=(32, 64, 128))
    batches = options.batches[:2] if options.tiny else options.batches
    groups = GROUPS[1:] if options.tiny else GROUPS
    cases = [(models, batch, "inference", PUBLISHED[len(models), batch]) for batch in batches for models in groups]
    input_gains.show(options, "switchflow_fig9", "Inference jobs of different networks: shared input against separate loaders",
                     input_gains.measure(options, 3, cases))


if __name__ == "__main__":
    main()
