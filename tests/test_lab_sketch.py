"""Sketches of gradients: unbiased, as accurate as promised, and of the right gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from random_qwen3 import make_model, make_tokenizer

from basis_rl.errors import ConfigError
from basis_rl.lab.gradient.projection import GradientSketch
from basis_rl.lab.gradient.scores import PolicyEngine, ScoreGradients, check_sampling
from basis_rl.rollouts import Request, SamplingSettings, TransformersEngine

SIZES = {"a": 48, "b": 7, "c": 35}


def sketched(
    gradients: Mapping[str, np.ndarray], width: int, seed: int
) -> tuple[np.ndarray, float]:
    sketch = GradientSketch({n: g.size for n, g in gradients.items()}, width=width, seed=seed)
    for name, gradient in gradients.items():
        sketch.add(name, torch.from_numpy(gradient).float())
    return sketch.take()


def random_gradients(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.normal(size=size) for name, size in SIZES.items()}


def test_every_number_of_a_gradient_goes_into_one_entry_with_a_sign():
    columns = []
    for name, size in SIZES.items():
        for place in range(size):
            unit = {n: np.zeros(s) for n, s in SIZES.items()}
            unit[name][place] = 1.0
            columns.append(sketched(unit, 16, 3)[0])
    matrix = np.array(columns).T
    assert (np.abs(matrix).sum(0) == 1).all()
    assert ((matrix == 0) | (np.abs(matrix) == 1)).all()
    gradients = random_gradients(0)
    whole, square = sketched(gradients, 16, 3)
    every = np.concatenate(list(gradients.values()))
    np.testing.assert_allclose(whole, matrix @ every, atol=1e-5)
    assert square == pytest.approx((every**2).sum())


@pytest.mark.parametrize("shape", ["spread", "one column"])
def test_inner_products_are_unbiased_with_the_stated_variance(shape):
    width, seeds = 16, 600
    g, h = random_gradients(1), random_gradients(2)
    if shape == "one column":  # all of the energy meets in one column of the rows
        for gradients in (g, h):
            for values in gradients.values():
                values[np.arange(len(values)) % width != 5] = 0.0
    products = np.array([sketched(g, width, s)[0] @ sketched(h, width, s)[0] for s in range(seeds)])
    every = [np.concatenate(list(gradients.values())) for gradients in (g, h)]
    true = every[0] @ every[1]
    stated = ((every[0] ** 2).sum() * (every[1] ** 2).sum() + true**2) / width
    assert abs(products.mean() - true) < 4 * np.sqrt(stated / seeds)
    assert products.var() < 1.4 * stated
    assert products.var() > 0.3 * stated


def test_pieces_of_a_large_parameter_are_as_the_whole(monkeypatch):
    gradient = {"a": np.random.default_rng(0).normal(size=1000)}
    whole = sketched(gradient, 16, 0)
    monkeypatch.setattr("basis_rl.lab.gradient.projection._PIECE", 64)
    pieces = sketched(gradient, 16, 0)
    np.testing.assert_allclose(pieces[0], whole[0], atol=1e-4)
    assert pieces[1] == pytest.approx(whole[1])


def test_a_sketch_starts_anew_and_another_seed_is_another_sketch():
    sketch = GradientSketch({"a": 20}, width=8, seed=0)
    sketch.add("a", torch.ones(4, 5))
    first = sketch.take()[0]
    assert np.abs(sketch.take()[0]).sum() == 0
    assert (sketched({"a": np.ones(20)}, 8, 0)[0] == first).all()
    assert (sketched({"a": np.ones(20)}, 8, 1)[0] != first).any()
    with pytest.raises(ConfigError, match="width is 1"):
        GradientSketch({"a": 20}, width=1)


def exact_gradient(model: torch.nn.Module, prompt: list[int], completion: list[int], T: float):
    """By token, with nothing shared with the code under test."""
    total = torch.zeros(())
    for i, token in enumerate(completion):
        ids = torch.tensor([prompt + completion[:i]])
        logits = model(input_ids=ids).logits[0, -1] / T
        total = total + logits[token] - logits.logsumexp(0)
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(total, list(parameters.values()))
    return dict(zip(parameters, found, strict=True))


def test_scores_are_the_exact_gradients_within_the_sketchs_error():
    model, width = make_model(sharpness=4.0), 2048
    completions = [[5, 9, 2], [40, 2], [7], [5, 9, 11]]
    prompt, temperature = [17, 30, 31], 0.7
    with ScoreGradients(model, width=width, temperature=temperature) as scores:
        found = [scores(prompt, completion) for completion in completions]
    exact = [
        torch.cat([g.reshape(-1) for g in exact_gradient(model, prompt, c, temperature).values()])
        for c in completions
    ]
    sketches = np.array([sketch for sketch, _ in found])
    products = torch.stack(exact) @ torch.stack(exact).T
    norms = products.diag().sqrt()
    np.testing.assert_allclose([square for _, square in found], norms**2, rtol=1e-4)
    errors = (sketches @ sketches.T - products.numpy()) / torch.outer(norms, norms).numpy()
    assert np.abs(errors).max() < 4 * np.sqrt(2 / width)
    assert np.abs(errors).max() > 0


def test_scores_leave_the_model_as_it_was():
    model = make_model()
    frozen = model.model.embed_tokens.weight
    frozen.requires_grad_(False)
    with ScoreGradients(model, width=64, parameters=r"layers\.1\..*mlp") as scores:
        names = list(scores._chosen)
        scores([3, 4], [5])
    assert len(names) == 3
    assert all("layers.1.mlp" in name for name in names)
    assert all(p.grad is None for p in model.parameters())
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert not frozen.requires_grad
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters())
    with pytest.raises(ConfigError, match="no parameter that can be trained has 'lora_'"):
        ScoreGradients(model, parameters="lora_")
    with pytest.raises(ConfigError, match="no regular expression"):
        ScoreGradients(model, parameters="(")


def test_an_engine_that_keeps_tokens_samples_what_the_plain_one_does():
    settings = SamplingSettings(max_tokens=6, stop=("7",))
    engine = PolicyEngine(make_model(sharpness=3.0), make_tokenizer(), name="tiny")
    plain = TransformersEngine(engine.network, engine.tokenizer, name="tiny")
    request = Request("k", "1+1=", 0, 20)
    found = [c for part in engine.stream([request], settings) for c in part[0].completions]
    expected = [c for part in plain.stream([request], settings) for c in part[0].completions]
    for one, other in zip(found, expected, strict=True):
        assert (one.text, one.tokens) == (other.text, other.tokens)
        assert len(one.ids) == one.tokens
        decoded = engine.tokenizer.decode(one.ids, skip_special_tokens=True)
        assert decoded.split("7")[0] == one.text
    assert engine.prompt_ids("1+1=", settings) == engine.tokenizer("1+1=")["input_ids"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"temperature": 0}, "greedy"), ({"top_p": 0.9}, "top_p is 0.9"), ({"top_k": 5}, "top_k")],
)
def test_sampling_without_a_score_gradient_is_refused(changes, message):
    check_sampling(SamplingSettings(temperature=0.7))
    with pytest.raises(ConfigError, match=message):
        check_sampling(SamplingSettings(**changes))
