"""Capture by running: the user's own Python over tensors without data, with autograd's own backward pass.

What arrives at the tracer is what eager would execute, operator by operator, below autograd. The parts:
`tensor.py` the tensors that the user's code sees; `tracer.py` one dispatch mode that turns every operator into a node; `regions.py`
memory and its present contents, by which writes become functional; `passes.py` the forward and the backward pass.
"""
