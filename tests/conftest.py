"""Makes the package, the example models and the helpers of the tests importable without installing anything."""

import os
import pathlib
import sys

# Some virtual machines announce matrix units (AMX) that they do not let a process use; oneDNN would try them for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "python", ROOT / "tests" / "support"):
    sys.path.insert(0, str(folder))
