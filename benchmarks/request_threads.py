"""Measures requests to one `regen.share.infer` function from many threads against one thread, and compares every answer with plain PyTorch's.

    python benchmarks/request_threads.py                       # 100,000 requests of 16 threads, CPU
    python benchmarks/request_threads.py --device cuda

One thread and many take turns, round by round, so that a slow moment of the machine counts for both. Prints a JSON line:
  {"what": "threads", "threads": k, "requests": of the many threads, "wrong": answers, "alone_per_second": of one thread,
   "per_second": of k threads, "ratio": of the two, median over the rounds}
"""

import argparse
import json
import statistics
import threading
import time

import torch
from torch import nn

import regen

ROUNDS = 20
WIDTH, LAYERS, BATCH = 256, 8, 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--requests", type=int, default=100_000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]).to(arguments.device).eval()
    requests = [torch.randn(BATCH, WIDTH, device=arguments.device) for _ in range(arguments.threads)]
    with torch.no_grad():
        answers = [model(x) for x in requests]
    predict = regen.share.infer(model, (requests[0],), cache=False)
    each = arguments.requests // ROUNDS // arguments.threads
    wrong = [0] * arguments.threads

    def ask(number):
        for _ in range(each):
            wrong[number] += not torch.equal(predict(requests[number]), answers[number])

    def rate(threads, count):
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return count * each / (time.perf_counter() - began)

    def alone():
        for number in range(arguments.threads):
            ask(number)

    ask(0)
    rows = []
    for _ in range(ROUNDS):
        one = rate([threading.Thread(target=alone)], arguments.threads)
        many = rate([threading.Thread(target=ask, args=(number,)) for number in range(arguments.threads)], arguments.threads)
        rows.append((one, many))
    print(json.dumps({
        "what": "threads", "threads": arguments.threads, "requests": ROUNDS * each * arguments.threads, "wrong": sum(wrong),
        "alone_per_second": round(statistics.median(one for one, _ in rows), 1),
        "per_second": round(statistics.median(many for _, many in rows), 1),
        "ratio": round(statistics.median(many / one for one, many in rows), 3)}))


main()
