"""The loss in a plain PyTorch loop: bounding boxes give every pixel a set of candidate classes."""

import torch
from torch import nn

from propall import ProPaLLLoss

CLASSES = ("ground", "disc", "square")
STEPS = 150


def scene(seed: int, size: int = 24) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """An image, its true segmentation and its candidate masks: a pixel in a box is ground or the object."""
    draw = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    truth = torch.zeros(size, size, dtype=torch.long)
    candidates = torch.zeros(len(CLASSES), size, size, dtype=torch.bool)
    candidates[0] = True
    for kind in (1, 2):
        cx, cy = torch.randint(7, size - 7, (2,), generator=draw).tolist()
        r = 4
        inside = (
            (x - cx) ** 2 + (y - cy) ** 2 <= r**2
            if kind == 1
            else ((x - cx).abs() < r) & ((y - cy).abs() < r)
        )
        truth[inside] = kind
        candidates[kind] |= ((x - cx).abs() <= r + 3) & ((y - cy).abs() <= r + 3)
        # An annotator clicked on the center of each object, so its class is certain there.
        center = ((x - cx).abs() <= 1) & ((y - cy).abs() <= 1)
        candidates[:, center] = False
        candidates[kind, center] = True
        truth[center] = kind
    colors = torch.tensor([[0.2, 0.3, 0.2], [0.7, 0.3, 0.2], [0.2, 0.3, 0.8]])
    image = colors[truth].movedim(-1, 0) + 0.15 * torch.randn(3, size, size, generator=draw)
    return image, truth, candidates


def main() -> None:
    torch.manual_seed(0)
    images, truth, candidates = (torch.stack(part) for part in zip(*map(scene, range(24)), strict=True))
    train, test = slice(0, 16), slice(16, 24)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 3, 1),
    )
    criterion = ProPaLLLoss()  # class dimension 1, as in nn.CrossEntropyLoss: (n, k, h, w)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for step in range(STEPS):
        loss = criterion(net(images[train]), candidates[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    with torch.no_grad():
        predicted = net(images[test]).argmax(1)
    sizes = candidates[test].float().sum(1)
    print(f"{(sizes > 1).float().mean():.0%} of the pixels have several candidates")
    accuracy, ground = ((predicted == truth[test]).float().mean(), (truth[test] == 0).float().mean())
    print(f"pixel accuracy {accuracy:.3f}, all ground {ground:.3f}")
    for kind, name in enumerate(CLASSES):
        both = ((predicted == kind) & (truth[test] == kind)).sum()
        either = ((predicted == kind) | (truth[test] == kind)).sum()
        print(f"  {name}: intersection over union {both / either:.3f}")


if __name__ == "__main__":
    main()
