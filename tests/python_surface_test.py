"""What users of the package see: documented, annotated, typed, and with one root of all errors."""

import ast
import dataclasses
import inspect
import pathlib
import re
import types

import pytest
import torch

import regen
import regen.integrations.torch_compile
from regen import _runtime, errors, options
from regen._session.budget import as_budget

PACKAGE = pathlib.Path(regen.__file__).parent
PUBLIC_MODULES = (regen, regen.capture, regen.errors, regen.options, regen.share)


def public_functions():
    """(name, function) of every function and method that users call; of classes, those that have no leading underscore, and calls."""
    found = {"regen.integrations.torch_compile.regen": regen.integrations.torch_compile.regen}
    for module in PUBLIC_MODULES:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, types.FunctionType):
                found[f"{module.__name__}.{name}"] = thing
            elif inspect.isclass(thing) and thing.__module__.startswith("regen") and thing.__module__ != "regen._runtime":
                found.update({f"{module.__name__}.{name}.{m}": f for m, f in methods_of(thing)})
    return sorted(found.items())


def methods_of(kind):
    for owner in kind.__mro__:
        if not owner.__module__.startswith("regen"):
            continue
        for name, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else None
            if isinstance(function, types.FunctionType) and function.__module__.startswith("regen") and (
                    not name.startswith("_") or name in ("__init__", "__call__")):
                yield name, function


def test_every_public_name_is_there_and_says_what_it_is():
    for module in PUBLIC_MODULES:
        assert module.__doc__, module
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
                assert inspect.getdoc(thing), f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("name, function", public_functions())
def test_public_functions_are_annotated_and_documented(name, function):
    signature = inspect.signature(function)
    missing = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
    assert not missing, f"{name}: no annotation of {missing}"
    assert signature.return_annotation is not signature.empty, f"{name}: no annotation of what it returns"
    assert function.__name__ == "__init__" or inspect.getdoc(function), f"{name} has no docstring"


@pytest.mark.parametrize("function", [
    regen.step, regen.wrap, regen.will_it_fit, regen.check, regen.share.infer, regen.share.loader, regen.share.resumable, regen.capture.capture,
    regen.capture.capture_step, regen.capture.capture_inference, regen.capture.save], ids=lambda f: f.__name__)
def test_docstrings_have_every_argument(function):
    text = inspect.getdoc(function) or ""
    arguments = text.partition("\nArgs:\n")[2].partition("\n\n")[0]
    described = [line.strip().partition(":")[0] for line in arguments.splitlines() if line.startswith("    ") and line[4] != " "]
    assert described == list(inspect.signature(function).parameters), "in the order of the signature"
    assert "\nRaises:\n" in text
    assert "\nReturns:\n" in text or function is regen.capture.save


def parameters(function):
    return dict(inspect.signature(function).parameters)


def test_every_option_is_in_the_signatures():
    known = {field.name: field.default for field in dataclasses.fields(options.Options)}
    for function in (regen.step, regen.wrap, regen.check, regen.share.infer):
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters(function).values()), "options have names"
        assert set(known) - set(parameters(function)) <= {"reserve"}, function.__name__
    for name, default in known.items():
        if name not in ("budget", "reserve"):
            assert parameters(regen.step)[name].default == default
            assert parameters(regen.wrap)[name].default == default
    of_backend = set(options.BackendOptions.__annotations__)
    assert of_backend == set(parameters(regen.wrap)) - {"model", "args", "kwargs"}


@pytest.mark.parametrize("old, new", options.RENAMED.items())
def test_former_names_of_options_are_refused_with_the_present_ones(old, new):
    model = torch.nn.Linear(2, 2)
    for call in (lambda **o: regen.wrap(model, (torch.ones(1, 2),), 0.5, **o), lambda **o: regen.step(model, None, None, (), 0.5, **o),
                 lambda **o: regen.share.infer(model, (), **o), lambda **o: regen.check(model, (), **o), lambda **o: regen.will_it_fit(model, (), 0.5, **o)):
        with pytest.raises(regen.Error, match=f"{old}=.*is called '{new}' now, expected {new}=True") as error:
            call(**{old: True})
        assert isinstance(error.value, TypeError) and "\n" not in str(error.value)


@pytest.mark.parametrize("name, value, kind, expected", [
    ("time_limit", "5", TypeError, "seconds, 0 or more"), ("time_limit", -1, ValueError, "seconds, 0 or more"),
    ("time_limit", float("nan"), ValueError, "seconds, 0 or more"), ("time_limit", True, TypeError, "seconds"),
    ("work_limit", 2.5, TypeError, "a whole number"), ("work_limit", -1, ValueError, "a whole number"), ("work_limit", 1 << 70, ValueError, "a whole number"),
    ("planner", None, TypeError, "the name of a planner"), ("planner", "auto,", ValueError, "the name of a planner"),
    ("link", (1, 2), ValueError, "three numbers above 0"), ("link", (0, 1, 1), ValueError, "three numbers above 0"),
    ("link", "fast", TypeError, "three numbers"),
    ("plan_file", 3, TypeError, "save_plan"), ("cache", 3, TypeError, "a folder, None or False"), ("cache", True, ValueError, "a folder, None or False"),
    ("debug", None, TypeError, "True or False"), ("cuda_graphs", 1, TypeError, "True or False"), ("releasable", "x", TypeError, "True or False"),
    ("host_budget", "abc", ValueError, "8GiB"), ("budget", "6GX", ValueError, "expected B, KB"), ("reserve", "abc", ValueError, "8GiB"),
    ("reserve", -1, ValueError, "'1GiB'"), ("gradient_chunk", "x", ValueError, "a number of bytes, 1 or more"),
    ("gradient_chunk", 0, ValueError, "a number of bytes")])
def test_an_option_that_has_another_value_is_named_with_what_it_may_be(name, value, kind, expected):
    """In one line, before anything is measured."""
    model = torch.nn.Linear(2, 2)
    with pytest.raises(regen.OptionError, match=re.escape(expected)) as error:
        regen.wrap(model, (torch.ones(1, 2),), **{"budget": "1MiB", "cache": False, name: value})
    text = str(error.value)
    assert text.startswith(f"{name}={value!r}") and "\n" not in text and isinstance(error.value, kind)


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    found = options.Options("1MiB", time_limit=numpy.float32(2), work_limit=numpy.int64(3), link=(numpy.float64(1), 2, 3))
    assert (found.time_limit, found.work_limit) == (2, 3)


@pytest.mark.parametrize("name, value", [("clip_grad_norm", -1), ("clip_grad_value", "x"), ("scaler", 3), ("accumulate", 0)])
def test_options_of_a_step_alone(name, value):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(regen.OptionError, match="expected") as error:
        regen.step(model, None, torch.optim.SGD(model.parameters()), (torch.ones(1, 2),), "1MiB", **{name: value})
    assert str(error.value).startswith(f"{name}={value!r}; ")


def test_other_things_than_modules_are_refused():
    for call in (lambda: regen.step(3, None, None, (), "1MiB"), lambda: regen.wrap(3, (), "1MiB")):
        with pytest.raises(regen.CaptureError, match="cannot capture int: not a torch.nn.Module"):
            call()


def test_a_comparison_of_no_steps_is_refused():
    with pytest.raises(regen.OptionError, match="steps=0; expected"):
        regen.check(torch.nn.Linear(2, 2), (torch.ones(1, 2),), steps=0)


def budget_bytes(budget, unplanned, device):
    return as_budget(budget).bytes(unplanned, device)


@pytest.mark.parametrize("budget", [1, 2, 0, -5, 3.5, 100.0, float("nan"), float("inf"), 0.0, -0.5, 4095])
def test_a_number_that_is_no_budget(budget):
    with pytest.raises(regen.OptionError, match="expected bytes as text such as '6GiB' or as an integer above 1 MiB, a fraction below 1") as error:
        as_budget(budget)
    assert f"budget={budget!r}" in str(error.value) and isinstance(error.value, ValueError) and "\n" not in str(error.value)


@pytest.mark.parametrize("budget", [True, [1], 1j])
def test_a_thing_that_is_no_budget(budget):
    with pytest.raises(regen.Error, match="budget=.*; expected bytes as text") as error:
        as_budget(budget)
    assert isinstance(error.value, TypeError)


@pytest.mark.parametrize("budget, expected", [
    ("1KiB", 1024), ("2", 2), (4096, 4096), (16e9, 16 * 10**9), (0.5, 1 << 29), (1.0, 1 << 30), ("0.5GiB", 1 << 29)])
def test_budgets(budget, expected):
    found = as_budget(budget)
    assert found is not None and found.bytes(1 << 30, "cpu") == expected


def test_no_budget_is_refused_outside_of_a_job():
    assert as_budget(None) is None
    with pytest.raises(regen.Error, match="budget=None; expected bytes") as error:
        regen.wrap(torch.nn.Linear(4, 4), (torch.ones(2, 4),), cache=False)
    assert isinstance(error.value, TypeError) and "\n" not in str(error.value)


def test_a_budget_of_one_is_refused_before_anything_is_measured():
    model = torch.nn.Linear(4, 4)
    with pytest.raises(regen.OptionError, match="budget=1; expected"):
        regen.wrap(model, (torch.ones(2, 4),), budget=1, cache=False)


def test_all_errors_have_one_root():
    kinds = [getattr(errors, name) for name in errors.__all__]
    assert all(issubclass(kind, regen.Error) for kind in kinds)
    bases = {"BudgetError": MemoryError, "CaptureError": ValueError, "CheckError": AssertionError, "OptionError": ValueError, "OptionTypeError": TypeError,
             "MissingPackageError": ImportError,
             "UsageError": RuntimeError}
    for name, base in bases.items():
        assert issubclass(getattr(regen, name), base)
    assert regen.RegenError is regen.Error
    made_in_cpp = [kind for kind in vars(_runtime).values() if inspect.isclass(kind) and issubclass(kind, BaseException)]
    assert made_in_cpp and all(issubclass(kind, regen.Error) for kind in made_in_cpp)
    with pytest.raises(regen.Error, match="bytes"):
        _runtime.parse_bytes("much")


def test_the_version_is_that_of_the_project():
    listed = (PACKAGE.parents[1] / "CMakeLists.txt").read_text()
    assert f"project(regen VERSION {regen.__version__}" in listed


def test_no_function_hides_a_module():
    for folder in (PACKAGE, PACKAGE / "share"):
        module = regen if folder == PACKAGE else regen.share
        for path in folder.glob("[!_]*.py"):
            assert isinstance(getattr(module, path.stem, module), types.ModuleType), path


# --- the stubs of the C++ module

STUBS = ast.parse((PACKAGE / "_runtime.pyi").read_text())


def stub_names(body):
    """Names that a body of the stubs defines, without what is for the type checker only."""
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if not any(isinstance(d, ast.Name) and d.id == "type_check_only" for d in node.decorator_list):
                yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not (
                isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"):
            yield node.target.id


def test_types_come_with_the_package():
    assert (PACKAGE / "py.typed").is_file()


def test_stubs_have_exactly_what_the_module_has():
    expected = {name for name in vars(_runtime) if not name.startswith("__")}
    assert set(stub_names(STUBS.body)) == expected


@pytest.mark.parametrize("stub", [n for n in STUBS.body if isinstance(n, ast.ClassDef) and hasattr(_runtime, n.name)], ids=lambda n: n.name)
def test_stubs_have_exactly_what_the_classes_have(stub):
    kind = getattr(_runtime, stub.name)
    special = ("__init__", "__enter__", "__exit__")
    expected = {name for name in vars(kind) if not name.startswith("_")}
    assert {name for name in stub_names(stub.body) if name not in special} == expected
    if not issubclass(kind, BaseException):
        assert {base.id for base in stub.bases if isinstance(base, ast.Name)} == {b.__name__ for b in kind.__bases__ if b.__module__ == "regen._runtime"}
