"""When a device is at work: intervals from torch's profiler, and what they cover."""


def recorded(call, device):
    """(what `call` returns, [(begin, end), ...]): kernels and copies on a GPU, or operators on a CPU, in seconds since 1970."""
    import torch  # the rest is needed where there is none
    from torch.autograd import DeviceType  # pyright: ignore[reportPrivateImportUsage]

    on_gpu = device.startswith("cuda")
    activity = torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU
    kind = DeviceType.CUDA if on_gpu else DeviceType.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        result = call()
    events = profile.profiler.kineto_results.events()
    # Ranges with a name (a step of the optimizer) cover pauses between their kernels.
    return result, [(event.start_ns() / 1e9, event.end_ns() / 1e9) for event in events
                    if event.device_type() == kind and not event.is_user_annotation()]


def merged(spans):
    """In order, without overlaps."""
    result = []
    for begin, end in sorted(spans):
        if result and begin <= result[-1][1]:
            result[-1][1] = max(result[-1][1], end)
        else:
            result.append([begin, end])
    return result


def covered(spans):
    """Seconds in which at least one of them is."""
    return sum(end - begin for begin, end in merged(spans))


def overlap(first, second):
    """Seconds in which one of each is."""
    return covered(first) + covered(second) - covered([*first, *second])
