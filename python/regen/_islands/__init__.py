"""Islands: parts of a model that run as the user's Python between planned parts, because no one program can be made of them.

Which part: `places.py` finds the function of the model that was running when the trace met something that it cannot write down. In the program:
`first_run.py` calls it to see what it does, `tracing.py` makes one node of its forward pass and one of its backward pass, and `sample.py` runs it on
the sample batch to learn sizes and layouts. While training: `operators.py` is what the executor calls, `call.py` runs the function with autograd,
`held.py` puts what its graph saves into memory that is planned, `surroundings.py` gives it the surroundings it has in plain PyTorch.
"""
