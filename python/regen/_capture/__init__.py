"""Tracing: what turns a PyTorch model into a captured step."""
