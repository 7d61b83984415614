"""SwitchFlow, Figure 8: what two jobs with the same network gain by one shared input: training at batch 32, inference at batch 128.

    python experiments/switchflow_fig8.py --device cuda        # 145 s on an H200 with --cores 6

The published ranges are those of its networks on a V100 (2080 Ti: training 1 to 8 %, inference 7 to 66 %).
"""

import input_gains

KINDS = [("training", 32, (2, 9)), ("inference", 128, (31, 55))]


def main():
    options = input_gains.parse(__doc__, seconds=1.5, bound=160)
    models = input_gains.MODELS[:2] if options.tiny else input_gains.MODELS
    cases = [([model] * 2, batch, kind, published) for kind, batch, published in KINDS for model in models]
    input_gains.show(options, "switchflow_fig8", "Two jobs of one network: shared input against separate loaders",
                     input_gains.measure(options, 2, cases))


if __name__ == "__main__":
    main()
