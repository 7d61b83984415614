"""Trains a GPT-2 on the bytes of a text with the Trainer of transformers. The last argument of the trainer is all that regen adds.

    python examples/fine_tune.py --text book.txt --budget 20GiB
    python examples/fine_tune.py --text book.txt --budget 20GiB --resume out/checkpoint-100
"""

import argparse
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import regen


def blocks_of(path, length):
    """Each byte is a token; a model that predicts the next one has its own input for labels."""
    tokens = torch.tensor(list(pathlib.Path(path).read_bytes()))
    return [{"input_ids": block, "labels": block} for block in tokens[: len(tokens) // length * length].view(-1, length)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=__file__, help="a file (this script)")
    parser.add_argument("--budget", help="bytes of the device, such as 20GiB; without it the trainer trains as always")
    parser.add_argument("--resume", help="a checkpoint of an earlier run")
    parser.add_argument("--out", default="out")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=options.length, n_embd=options.width, n_layer=options.depth, n_head=4))
    arguments = TrainingArguments(
        options.out, max_steps=options.steps, save_steps=options.save_every, per_device_train_batch_size=options.batch,
        gradient_accumulation_steps=options.accumulate, bf16=options.bf16, logging_steps=1, report_to=[])
    callbacks = [regen.integrations.hugging_face.Budget(options.budget)] if options.budget else []
    trainer = Trainer(model=model, args=arguments, train_dataset=blocks_of(options.text, options.length), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=options.resume)
    trainer.save_model()
    for budget in callbacks:
        print(budget.plan)


if __name__ == "__main__":
    main()
