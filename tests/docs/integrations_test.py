"""What docs/how-to says of Hugging Face models and Lightning modules, on models of the same form."""

import pytest

torch = pytest.importorskip("torch")
regen = pytest.importorskip("regen")


class LanguageModel(torch.nn.Module):
    """Tensors by name in, a dictionary with loss and logits out."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(32, 128), torch.nn.GELU(), torch.nn.Linear(128, 32)) for _ in range(3)])
        self.head = torch.nn.Linear(32, 50)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        hidden = self.embed(input_ids) * attention_mask.unsqueeze(-1)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        logits = self.head(hidden)
        return {"loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def sample():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(50, (16, 32), generator=generator)
    return {"input_ids": tokens, "attention_mask": torch.ones(16, 32), "labels": tokens.roll(-1, 1)}


def test_a_model_with_named_inputs_and_a_dictionary_of_outputs():
    torch.manual_seed(0)
    plain = LanguageModel()
    model = regen.wrap(plain, (), budget=0.7, kwargs=sample(), reserve=0, cache=False)
    assert isinstance(model, LanguageModel)
    assert list(model.state_dict()) == list(plain.state_dict())
    out = model(**sample())
    out["loss"].backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    plain.zero_grad()
    expected = plain(**sample())
    expected["loss"].backward()
    assert torch.equal(out["loss"], expected["loss"])
    assert torch.equal(out["logits"], expected["logits"])
    assert all(torch.equal(a, b.grad) for a, b in zip(gradients, plain.parameters()))


def test_a_wrapped_network_inside_another_module():
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)]
            self.net = regen.wrap(torch.nn.Sequential(*layers), (torch.randn(256, 32),), budget=0.9, cache=False)

        def training_step(self, batch):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    outer = Outer()
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.1)
    batch = torch.randn(256, 32), torch.randint(10, (256,))
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = outer.training_step(batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[2] < losses[0]
    assert all(name.startswith("net.") for name in outer.state_dict())
