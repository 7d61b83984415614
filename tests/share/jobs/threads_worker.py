"""A job with threads that ask one planned function: says how many answers were right."""

import pathlib
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python"))

import torch
from torch import nn

import regen
from regen._check import same_bits

THREADS, REQUESTS = 4, 500


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    regen.share.job(required=True)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    predict = regen.share.infer(model, (torch.zeros(4, 32),), cache=False, quantum=1e-9)
    requests = [torch.randn(4, 32) for _ in range(THREADS)]
    with torch.no_grad():
        answers = [model(x) for x in requests]
    right = [0] * THREADS

    def ask(number):
        for _ in range(REQUESTS):
            right[number] += same_bits(predict(requests[number]), answers[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("right", sum(right), "of", THREADS * REQUESTS)


main()
