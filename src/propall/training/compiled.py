"""Where a stack is trained, and what makes its step fast without changing its meaning: compiled, captured."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.training.contract import Run
from propall.training.recipe import Recipe

if TYPE_CHECKING:
    from propall.training.stack import Stack

#: Steps before the capture, so that libraries choose their kernels outside of it.
WARM_UP_STEPS = 3
#: Steps, times runs, from which on it pays to compile them on a GPU; before, they are captured as they are.
#: Compiling takes some 15 seconds and saves some 0.2 milliseconds a step and run; with convolutions, a minute
#: and a millisecond.
COMPILING_PAYS_FROM, CONVOLUTIONS_PAY_FROM = 80_000, 40_000
#: Operations of a step from which on a CPU's threads share them. Below, they gain little where cores are idle
#: and lose tenfold where another program wants one: every step waits for the slowest, hundreds of times.
THREADS_PAY_FROM = 100e6
#: Share of the free memory that a stack may plan with.
MEMORY_SHARE = 0.7
#: Copies of its parameters that a run needs while it trains: moments, gradients, and what the step returns.
PARAMETER_COPIES = 8
#: Numbers kept per instance of a batch and parameter row, from one pass to the other.
ACTIVATION_COPIES = 6


def best_device(name: str = "auto") -> torch.device:
    """The named device, or for "auto" a GPU where there is one; one that cannot be used is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device: {name!r} given, which torch does not know. Use 'cpu', 'cuda', 'cuda:1' or 'auto'."
        ) from error
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        there = f"only {count} of them" if count else "no CUDA device that torch can use"
        raise ValueError(f"device: {name!r} given, but this machine has {there}. Use 'cpu' or 'auto'.")
    return device


@contextlib.contextmanager
def matrix_precision(recipe: Recipe) -> Iterator[None]:
    """Whether float32 matrix products may use the tensor cores' shorter mantissa, as the recipe says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if recipe.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def few_threads(stack: "Stack") -> Iterator[None]:
    """One thread for a stack of small steps on a CPU; afterwards as many as before."""
    before = torch.get_num_threads()
    products = 6 * sum(t.numel() for t in stack.parameters.values()) * max(stack.batch_sizes, default=0)
    alone = stack.stream.device.type == "cpu" and products < THREADS_PAY_FROM
    # What convolutions do is not to be told from their parameters.
    if alone and not has_convolutions(stack.skeleton):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_convolutions(module: nn.Module) -> bool:
    """Whether some layer is a convolution."""
    # torch has no public base class of its convolutions.
    base = nn.modules.conv._ConvNd  # noqa: SLF001
    return any(isinstance(part, base) for part in module.modules())


def stack_limit(net: Any, recipe: Recipe, run: Run, runs: int) -> int:
    """How many such runs are trained at once: as many as memory takes, convolutions on a GPU one by one.

    A stack of convolutions is one grouped convolution, which a GPU computes more slowly than one after the
    other; matrix products gain from being stacked.
    """
    device = run.train.x.device
    if device.type != "cuda" or runs == 1:
        return runs
    module = net if isinstance(net, nn.Module) else net(run.train.in_shape, run.train.n_classes)
    if has_convolutions(module):
        return 1
    size = run.train.x.element_size()
    parameters = sum(p.numel() for p in module.parameters())
    outputs = sum(p.shape[0] for p in module.parameters())
    n, k = run.train.candidates.shape
    activations = ACTIVATION_COPIES * min(recipe.batch_size, n) * (outputs + run.train.x[0].numel())
    each = size * (PARAMETER_COPIES * parameters + activations) + n * k * (1 + 2 * size) + 16 * n
    if MEMORY_SHARE * torch.cuda.mem_get_info(device)[0] < runs * each:
        release()
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, min(runs, int(MEMORY_SHARE * free / each)))


class Captured:
    """A stack whose step is compiled where that pays and, on a GPU, replayed from a graph.

    The graph reads and writes the stack's own tensors, so everything else works as without it. Where a
    network or objective cannot be compiled or captured, training goes on without, with a warning.

    Args:
        stack: the runs; training goes on from where they are.
        compiling: whether to compile before capturing; None: where it pays.
    """

    def __init__(self, stack: "Stack", compiling: bool | None = None) -> None:
        self.stack, self.compiling = stack, compiling
        stream = stack.stream
        runs, device = len(stack.runs), stream.device
        self.batch_size = stack.batch_sizes[0]
        self.whole = sum(size == self.batch_size for size in stack.batch_sizes)
        self.order = torch.zeros(runs, stream.n, dtype=torch.int64, device=device)
        self.position = torch.zeros((), dtype=torch.int64, device=device)
        self.losses = torch.zeros(runs, dtype=stack.rate.dtype, device=device)
        self.columns = torch.arange(self.batch_size, device=device)
        self.tensors, self.classifiers = stack.tensors, stack.classifiers
        self._replay: Callable[[], None] | None = None
        self._scoring = Scoring(stack)

    def _step(self) -> None:
        stack = self.stack
        index = self.order.index_select(1, self.position * self.batch_size + self.columns)
        self.losses.add_(stack.advance(*stack.next_batch(index)))
        self.position.add_(1)

    def _prepare(self) -> Callable[[], None]:
        changed = [*self.stack.tensors().values(), self.position, self.losses]
        before = [tensor.clone() for tensor in changed]
        attempts: list[tuple[str, Callable[[], None]]] = [("captured", self._step)]
        if self._compiling_pays():
            attempts.insert(0, ("compiled", torch.compile(self._step, fullgraph=True, dynamic=False)))
        try:
            for what, step in attempts:
                try:
                    return self._captured(step)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:  # whatever it is, the plain step still works
                    warnings.warn(
                        f"the step could not be {what} ({type(error).__name__}: {str(error)[:200]}); "
                        "training goes on without, more slowly.",
                        RuntimeWarning,
                        stacklevel=2,
                    )
            return self._step
        finally:
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)

    def _compiling_pays(self) -> bool:
        stack = self.stack
        convolves = has_convolutions(stack.skeleton)  # made here: no compiler could trace that
        if self.compiling is not None:
            return self.compiling
        steps = (stack.total_steps - int(stack.step)) * len(stack.runs)
        return steps >= (CONVOLUTIONS_PAY_FROM if convolves else COMPILING_PAYS_FROM)

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        device = self.stack.stream.device
        if device.type != "cuda":
            step()
            return step
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self.position.zero_()
                step()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.position.zero_()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    @torch.no_grad()
    def train_epoch(self, epoch: int) -> Float[Tensor, "r"]:
        """Every step of one epoch; returns each run's mean loss. Nothing waits for the device."""
        self.order.copy_(self.stack.stream.order(epoch))
        if self._replay is None:
            self._replay = self._prepare()
        self.position.zero_()
        self.losses.zero_()
        for _ in range(self.whole):
            self._replay()
        total = self.losses.clone()
        for batch, noises in self.stack.batches(epoch, first=self.whole):
            total += self.stack.advance(batch, noises)
        return total / len(self.stack.batch_sizes)

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """Every run's scores of the same x, in evaluation mode."""
        return self.stack.decode(self._scoring.logits(x))

    def forget(self) -> None:
        """Let go of the test set."""
        self._scoring = Scoring(self.stack)


class Scoring:
    """Outputs for a test set that is asked for again and again: on a GPU replayed from a graph."""

    def __init__(self, stack: "Stack") -> None:
        self.stack = stack
        self._seen: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: Tensor | None = None

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """See `Stack.logits`."""
        if x is not self._seen or not x.is_cuda:
            # Once, x is scored as it comes, which also lets libraries choose their kernels.
            self._seen, self._graph, self._logits = x, None, None
            return self.stack.logits(x)
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._logits = self.stack.logits(x)
            self._graph = graph
        self._graph.replay()
        assert self._logits is not None
        return self._logits.clone()


#: What was captured on a GPU, while nobody trains with it; the latest last.
_idle: list[Captured] = []
#: How many captures are kept: the methods of a table take turns, on one data set after the other.
KEPT = 8


@contextlib.contextmanager
def captured(stack: "Stack", compiling: bool | None = None) -> Iterator[Captured]:
    """A captured stack. The last captures on a GPU are kept: a stack of the same shape takes one's place.

    What that stack was is then gone; so everything of it has to be copied (`classifiers` does) in time.
    """
    if stack.stream.device.type != "cuda":
        yield Captured(stack, compiling)
        return
    shape = stack.shape()
    alike = (old for old in reversed(_idle) if old.stack.net == stack.net and old.compiling == compiling)
    own = next((old for old in alike if old.stack.shape() == shape), None)
    if own is not None:
        _idle.remove(own)
        own.stack.adopt(stack)
    else:
        stack.stream.copy_data()
        own = Captured(stack, compiling)
    yield own
    own.forget()
    _idle.append(own)
    del _idle[:-KEPT]


@contextlib.contextmanager
def training(stack: "Stack", fast: bool | None) -> "Iterator[Captured | Stack]":
    """What trains a stack: its captured form or itself, with matrix products as its recipe says.

    Args:
        stack: the runs.
        fast: None: captured on a CUDA device, and compiled where that pays; True: both, anywhere; False: no.
    """
    with matrix_precision(stack.recipe), few_threads(stack):
        if fast or (fast is None and stack.stream.device.type == "cuda"):
            with captured(stack, fast) as quick:
                yield quick
        else:
            yield stack


def release() -> bool:
    """Give back the memory of what was captured and is not in use; returns whether there was any."""
    any_idle = bool(_idle)
    _idle.clear()
    if any_idle:
        torch.cuda.empty_cache()
    return any_idle
