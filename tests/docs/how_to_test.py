"""The code of the pages about frameworks runs as it stands: the ```python blocks of a page are one script."""

import os
import pathlib
import re

import pytest

torch = pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {
    "hugging-face.md": ("transformers", "accelerate"), "lightning.md": ("lightning",),
    "training-loops.md": ("transformers", "accelerate", "peft", "diffusers")}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("REGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    for framework in PAGES[page]:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    monkeypatch.chdir(tmp_path)
    if "accelerate" in PAGES[page]:
        __import__("accelerate").state.AcceleratorState._reset_state(True)  # the precision of an earlier accelerator in this process
    text = (ROOT / "docs" / "how-to" / page).read_text()
    space = {"__name__": page}
    exec(compile("\n".join(BLOCK.findall(text)), page, "exec"), space)
    assert "predicted" in capsys.readouterr().out  # of print(...plan)
    planned = [space[name] for name in ("model", "unet") if hasattr(space.get(name), "regen")]
    assert all(model.regen.passes > 0 for model in planned) and len(planned) == {"hugging-face.md": 1, "lightning.md": 0, "training-loops.md": 2}[page]
    assert not os.path.exists("out") or os.path.isdir("out/checkpoint-4")
