#!/usr/bin/env bash
# The main job in a minute: how much of a network fits, what a budget costs, and a picture of it.
set -euo pipefail
cd "$(dirname "$0")/.."
regen=build/regen
mkdir -p out

echo "== The largest batch of VGG19 in 16 GB: as published, and honestly counted =="
$regen max-batch zoo:vgg19 --memory 16e9 --planners keep_all,chen_sqrt,chen_greedy --accounting checkmate
$regen max-batch zoo:vgg19 --memory 16e9 --planners keep_all,chen_sqrt,chen_greedy
echo
echo "== GPT-2 small, batch 8, sequence 1024: a step in less memory =="
for budget in 60GB 24GB 16GB; do
  $regen plan zoo:gpt2_small@8 --backward exact --optimizer adam --device a100-40 --budget $budget || true
  echo
done
echo "== VGG19, batch 64, on a V100: what each planner pays for memory =="
$regen sweep zoo:vgg19@64 --device v100-16 --planners keep_all,chen_sqrt,chen_greedy,griewank \
  --budgets auto:24 -o out/vgg19_sweep.csv --plot out/vgg19_sweep.png
echo "wrote out/vgg19_sweep.csv and out/vgg19_sweep.png"
