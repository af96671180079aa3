"""Trials fused into one network, against trials alone: the same numbers, and how many more images a second."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.gpu.context import Context, Step
from benchmarks.gpu.networks import Shape, graph, network, training_step
from benchmarks.gpu.results import Check, Section
from torch import Tensor

from contrasweep.trainables.fusing import folding
from contrasweep.trainables.losses import build
from contrasweep.trainables.optimisation import SGD, gradients_of

FP64, OWN_ERROR = 1e-10, 1.5
"""Largest relative difference of a member from its trial alone in float64; and in float32 how often its error to
float64 may be that of the trial alone."""
MOMENTUM = 0.9


class Members:
    """K networks, each with its own weights, rate, temperature and images."""

    def __init__(self, context: Context, name: str, shape: Shape, batch: int, count: int) -> None:
        self.models: list[Any] = []
        for seed in range(count):
            torch.manual_seed(seed)
            self.models.append(network(name, shape).to(context.device).train())
        self.losses = [build("supcon", "cosine", temperature=0.1 + 0.05 * (seed % 4)) for seed in range(count)]
        self.rates = [0.01 * (1 + seed % 3) for seed in range(count)]
        generator = torch.Generator().manual_seed(0)
        self.views = torch.randn(count, 2 * batch, *shape, generator=generator).to(context.device)
        labels = torch.randint(4, (count, batch), generator=generator).repeat(1, 2).to(context.device)
        self.labels, self.rows = labels, torch.arange(batch, device=context.device).repeat(2).expand(count, -1)

    def alone(self, k: int, steps: int, dtype: torch.dtype) -> Tensor:
        """How far the parameters of member k moved in `steps` steps by itself; in float64 on the CPU."""
        model = copy.deepcopy(self.models[k]).to(dtype)
        optimizer = SGD(model.parameters(), self.rates[k], momentum=MOMENTUM)
        for _ in range(steps):
            optimizer.step(gradients_of(optimizer, self.losses[k](model(self.views[k].to(dtype)), self.labels[k])))
        return _joined(dict(model.named_parameters())) - self._start(k)

    def together(self, engine: str, steps: int, dtype: torch.dtype) -> list[Tensor]:
        """The same of all members, trained as one."""
        step = self.folded(engine, dtype)
        for _ in range(steps):
            step(self.views.to(dtype), self.labels, self.rows)
        names = [name for name, _ in step.network.named_parameters()]
        states = [step.network.take(k) for k in range(len(self.models))]
        return [_joined({name: state[name] for name in names}) - self._start(k) for k, state in enumerate(states)]

    def _start(self, k: int) -> Tensor:
        return _joined(dict(self.models[k].named_parameters()))

    def folded(self, engine: str, dtype: torch.dtype = torch.float32) -> folding.Step:
        """A training step of all members."""
        plain = copy.deepcopy(self.models[0]).to(dtype)
        folded = folding.fold(plain, len(self.models), engine)
        optimizer = folding.fold_optimizer(SGD, folded.parameters(), folded.slots, folded.templates)
        loss = folding.FoldedLoss(self.losses[0], folded.slots)
        for k, model in enumerate(self.models):
            folded.put(k, model.state_dict())
            optimizer.put(k, {"momentum": MOMENTUM})
            optimizer.lr[k] = self.rates[k]
            loss.put(k, self.losses[k])
        return folding.Step(folded, loss, optimizer)


def equality(context: Context) -> Iterator[Section]:
    """Members of a folded network against trials alone, in float64 and float32."""
    section = Section(
        "Fused trials are the trials",
        "How far the parameters moved in some steps, each member with its own weights, rate, temperature and images, "
        "against its trial alone: the largest relative difference in float64; and in float32, without TF32, after one "
        "step the member's error to float64 over that of the trial alone.",
    )
    yield section
    # cuDNN takes TF32 for some shapes: its rounding, 2^-11, would hide the engines' own.
    torch.backends.cudnn.allow_tf32 = False
    try:
        _compare(context, section)
    finally:
        torch.backends.cudnn.allow_tf32 = True


def _compare(context: Context, section: Section) -> None:
    steps = 5 if context.small else 50
    cases: list[tuple[str, Shape]] = [("cnn", (1, 8, 8)), ("mlp", (1, 8, 8))]
    if not context.small:
        cases.append(("resnet18", (3, 32, 32)))
    for name, shape in cases:
        members = Members(context, name, shape, 8, 3)
        double = [members.alone(k, steps, torch.float64) for k in range(3)]
        first = [members.alone(k, 1, torch.float64) for k in range(3)]
        own = max(_difference(members.alone(k, 1, torch.float32), first[k]) for k in range(3))
        for engine in ("grouped", "products"):
            context.require(15 if not context.small else 1)
            together = members.together(engine, steps, torch.float64)
            far = max(map(_difference, together, double))
            error = max(map(_difference, members.together(engine, 1, torch.float32), first)) / own
            section.rows.append({"network": name, "engine": engine, "float64": far, "float32, of alone's": error})
            section.checks.append(Check(f"{name}, {engine}: float64", far, FP64))
            section.checks.append(Check(f"{name}, {engine}: float32 over alone's", error, OWN_ERROR))


def gains(context: Context) -> Iterator[Section]:
    """Images a second of K members together against one trial on the GPU, plain and tuned."""
    section = Section(
        "Fused trials against one trial on the GPU",
        "Images a second of all members (SupCon, SGD; two views of each image of a batch), as a ratio to one trial in "
        "plain float32, and to one tuned (bfloat16, channels-last, CUDA graph); both in the same run. `streams`: K "
        "networks in one process, a CUDA graph each on a stream of its own.",
    )
    yield section
    if context.small:
        models, batches, counts = [("cnn", (1, 8, 8))], [4], [1, 2]
    else:
        models, batches, counts = (
            [("resnet18", (3, 32, 32)), ("cnn", (3, 32, 32))],
            [8, 16, 64, 4, 256],
            [1, 4, 8, 16, 32],
        )
    for batch in batches:
        for name, shape in models:
            context.require(30 if not context.small else 2)
            baselines: dict[str, Step] = {"plain": training_step(context, name, batch, shape)}
            if context.cuda:
                tuned = training_step(context, name, batch, shape, channels_last=True, bf16=True)
                baselines["tuned"] = graph(tuned)
            for count in counts:
                if 2 * batch * count > (64 if context.small else 4096):
                    continue
                context.require(20 if not context.small else 1)
                section.rows += _measured(context, name, shape, batch, count, baselines)
    section.notes.append("Ratios are trials an hour, if a trial is its training steps.")


def _measured(
    context: Context, name: str, shape: Shape, batch: int, count: int, baselines: dict[str, Step]
) -> list[dict[str, Any]]:
    """Rows of all ways to train `count` members at this batch size, measured in turns with the baselines."""
    ways = dict(baselines)
    for engine in ("grouped", "products"):
        ways[engine] = _folded_step(context, name, shape, batch, count, engine, bf16=False)
        if context.cuda:
            for bf16 in (False, True):
                step = _folded_step(context, name, shape, batch, count, engine, bf16=bf16, captured=True)
                ways[f"{engine}, graph{', bf16' if bf16 else ''}"] = step
    if context.cuda and count > 1:
        ways["streams, bf16"] = _streams(context, name, shape, batch, count)
    rows, times = [], context.interleaved(ways, 0.15, 3)
    for way, seconds in times.items():
        members = 1 if way in baselines else count
        if way in baselines and count > 1:
            continue
        rate = 2 * batch * members / seconds
        ratios = {base: rate * times[base] / (2 * batch) for base in baselines}
        rows.append(
            {
                "network": name,
                "batch": batch,
                "K": members,
                "way": way,
                "images a second": rate,
                **{f"to {base}": ratio for base, ratio in ratios.items()},
            }
        )
    return rows


def _folded_step(
    context: Context,
    name: str,
    shape: Shape,
    batch: int,
    count: int,
    engine: str,
    *,
    bf16: bool,
    captured: bool = False,
) -> Step:
    members = Members(context, name, shape, batch, count)
    step = members.folded(engine)

    def plain() -> None:
        with torch.autocast(context.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            step(members.views, members.labels, members.rows)

    if not captured:
        return plain
    tensors, pairing = step.tensors(), step.loss.pairing(members.labels, members.rows)

    def pure() -> None:
        with torch.autocast(context.device.type, torch.bfloat16, enabled=bf16, cache_enabled=False):
            step.run(tensors, members.views, pairing)

    return graph(pure)


def _streams(context: Context, name: str, shape: Shape, batch: int, count: int) -> Step:
    graphs = [
        graph(training_step(context, name, batch, shape, channels_last=True, bf16=True, seed=k)) for k in range(count)
    ]
    streams = [torch.cuda.Stream() for _ in graphs]  # type: ignore[no-untyped-call]

    def step() -> None:
        for replay, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                replay()

    return step


def _joined(values: dict[str, Tensor]) -> Tensor:
    return torch.cat([value.detach().double().cpu().flatten() for value in values.values()])


def _difference(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).norm() / expected.norm())
