"""Devices, threads and memory of a stack, and the compiled and captured forms of its step."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propall.nets.network import Network
from propall.training.contract import Run
from propall.training.networks import seeded_generator
from propall.training.recipe import Recipe

if TYPE_CHECKING:
    from propall.training.stack import Stack

#: Steps before the capture, so that libraries select their kernels outside of it.
WARM_UP_STEPS = 3
#: Steps times runs from which compiling pays on a GPU; below, the plain step is captured. Compiling takes
#: about 15 seconds and saves about 0.2 ms per step and run; with convolutions, a minute and 1 ms.
COMPILING_PAYS_FROM, CONVOLUTIONS_PAY_FROM = 80_000, 40_000
#: Operations per step from which several CPU threads pay. Below, they gain little on idle cores and lose
#: tenfold on busy ones: each of the many short operations waits for the slowest thread.
THREADS_PAY_FROM = 100e6
#: Convolution layers of any dimension.
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
#: Fraction of the free memory that a stack may use.
MEMORY_SHARE = 0.7
#: Copies of the parameters that training a run needs: moments, gradients, and results of the step.
PARAMETER_COPIES = 8
#: Numbers stored per instance of a batch and row of a parameter between forward and backward pass.
ACTIVATION_COPIES = 6


def best_device(name: str = "auto") -> torch.device:
    """The named device; "auto" selects a GPU if there is one. Raises ValueError if it cannot be used."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device: got {name!r}, which torch does not know. Use 'cpu', 'cuda', 'cuda:1' or 'auto'."
        ) from error
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        usable = f"only {count} of them" if count else "no CUDA device that torch can use"
        raise ValueError(f"device: got {name!r}, but this machine has {usable}. Use 'cpu' or 'auto'.")
    return device


def synchronize(device: torch.device) -> None:
    """Wait until a GPU, which runs asynchronously, has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def matrix_precision(recipe: Recipe) -> Iterator[None]:
    """Allow TF32 in float32 matrix products inside the block if the recipe says so."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if recipe.precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def few_threads(stack: "Stack") -> Iterator[None]:
    """Use one thread inside the block for a stack of small steps on a CPU."""
    before = torch.get_num_threads()
    products = 6 * sum(t.numel() for t in stack.parameters.values()) * max(stack.batch_sizes, default=0)
    is_small = stack.stream.device.type == "cpu" and products < THREADS_PAY_FROM
    # The cost of convolutions does not follow from the number of their parameters.
    if is_small and not has_convolutions(stack.skeleton):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def has_convolutions(module: nn.Module) -> bool:
    """Whether any layer is a convolution."""
    return any(isinstance(part, CONVOLUTIONS) for part in module.modules())


def stack_limit(net: Any, recipe: Recipe, run: Run, runs: int) -> int:
    """Number of such runs to train at once: as many as fit in memory; with convolutions on a GPU, one.

    A GPU computes a stack of convolutions (one grouped convolution) more slowly than the single ones in turn;
    matrix products gain from being stacked. On a CPU, networks of linear layers and ReLUs gain; our others
    take 1.4 to 1.8 times as long per run as one after the other. Runs that exchange targets stay together.
    """
    device = run.train.x.device
    exchange = recipe.views is not None and recipe.views.targets == "peers"
    if device.type not in ("cuda", "cpu") or runs == 1 or exchange:
        return runs
    if isinstance(net, nn.Module):
        module = net
    else:
        with seeded_generator(0):  # only the shapes matter
            module = net(run.train.in_shape, run.train.n_classes)
    if device.type == "cpu":
        alone = isinstance(module, Network) and module.dense_layers() is None and run.peers is None
        return 1 if alone else runs
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


@contextlib.contextmanager
def _many_steps() -> Iterator[None]:
    """Let the compiler keep the steps of many stacks: by default, it gives up after eight in one process."""
    from torch._dynamo import config  # takes a second to import

    with config.patch(recompile_limit=config.accumulated_recompile_limit):
        yield


@contextlib.contextmanager
def restored_generators(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's generators, from which layers such as dropout draw, at the end of the block."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


class Captured:
    """A stack whose step is compiled if that pays and, on a GPU, replayed from a CUDA graph.

    The graph reads and writes the stack's own tensors. If a network or objective cannot be compiled or
    captured, training continues with the plain step and a warning.

    Args:
        stack: the runs, in any state of training.
        compiling: whether to compile before capturing; None: if it pays.
    """

    def __init__(self, stack: "Stack", compiling: bool | None = None) -> None:
        self.stack, self.compiling = stack, compiling
        stream = stack.stream
        runs, device = len(stack.runs), stream.device
        self.batch_size = stack.batch_sizes[0]
        self.full_batches = sum(size == self.batch_size for size in stack.batch_sizes)
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
            with restored_generators(self.stack.stream.device):
                return self._first_that_works(attempts)
        finally:
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)

    def _first_that_works(self, attempts: list[tuple[str, Callable[[], None]]]) -> Callable[[], None]:
        for what, step in attempts:
            try:
                with _many_steps() if what == "compiled" else contextlib.nullcontext():
                    return self._captured(step)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the plain step works in any case
                warnings.warn(
                    f"the training step could not be {what} ({type(error).__name__}: "
                    f"{str(error)[:200]}); training continues without it, more slowly.",
                    RuntimeWarning,
                    stacklevel=3,
                )
        return self._step

    def _compiling_pays(self) -> bool:
        stack = self.stack
        convolves = has_convolutions(stack.skeleton)  # creates the skeleton, which a compiler could not trace
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
        """Every step of one epoch; returns each run's mean loss without waiting for the device."""
        self.order.copy_(self.stack.stream.order(epoch))
        if self._replay is None:
            self._replay = self._prepare()
        self.position.zero_()
        self.losses.zero_()
        for _ in range(self.full_batches):
            self._replay()
        total = self.losses.clone()
        for batch, noises in self.stack.batches(epoch, first=self.full_batches):
            total += self.stack.advance(batch, noises)
        self.stack.end_epoch(epoch + 1)
        return total / len(self.stack.batch_sizes)

    def scores(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """Scores of all runs for the same x, in evaluation mode."""
        return self.stack.decode(self._scoring.logits(x))

    def release_scoring(self) -> None:
        """Release the test set and its graph."""
        self._scoring = Scoring(self.stack)


class Scoring:
    """Outputs for a test set that is scored repeatedly, on a GPU replayed from a CUDA graph."""

    def __init__(self, stack: "Stack") -> None:
        self.stack = stack
        self._seen: Tensor | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._logits: Tensor | None = None

    @torch.no_grad()
    def logits(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "r n k"]:
        """See `Stack.logits`."""
        if x is not self._seen or not x.is_cuda:
            # The first time without a graph, which also lets libraries select their kernels.
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


#: Captures on a GPU that are not in use, the most recent last.
_idle: list[Captured] = []
#: Number of captures kept: the methods of a table alternate on each data set.
KEPT = 8


@contextlib.contextmanager
def captured(stack: "Stack", compiling: bool | None = None) -> Iterator[Captured]:
    """A captured stack; on a GPU it reuses the memory and graph of an earlier capture of the same shape.

    The earlier stack is overwritten, so its results must have been copied (`classifiers` does).
    """
    if stack.stream.device.type != "cuda":
        yield Captured(stack, compiling)
        return
    shape = stack.shape()
    alike = (old for old in reversed(_idle) if old.stack.net == stack.net and old.compiling == compiling)
    capture = next((old for old in alike if old.stack.shape() == shape), None)
    if capture is not None:
        _idle.remove(capture)
        capture.stack.adopt(stack)
    else:
        stack.stream.copy_data()
        capture = Captured(stack, compiling)
    yield capture
    capture.release_scoring()
    _idle.append(capture)
    del _idle[:-KEPT]


@contextlib.contextmanager
def training(stack: "Stack", fast: bool | None) -> "Iterator[Captured | Stack]":
    """Yield what trains the stack: its captured form or itself.

    Args:
        stack: the runs.
        fast: see `TrainingSetup`.
    """
    device = stack.stream.device
    # PyTorch captures graphs on the current GPU, whichever the tensors are on.
    current = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with matrix_precision(stack.recipe), few_threads(stack), current:
        if fast or (fast is None and device.type == "cuda"):
            with captured(stack, fast) as capture:
                yield capture
        else:
            yield stack


def release() -> bool:
    """Free the memory of captures that are not in use; returns whether there were any."""
    any_idle = bool(_idle)
    _idle.clear()
    if any_idle:
        torch.cuda.empty_cache()
    return any_idle
