"""The loss in a plain PyTorch loop: bounding boxes give every pixel a set of candidate classes."""

import torch
from pictures import MUTED, hide_frame, picture
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
    centers = []
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
        centers.append(((x - cx).abs() <= 1) & ((y - cy).abs() <= 1))
    # An annotator clicked on the center of each object, so its class is certain there.
    for kind, center in enumerate(centers, 1):
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
    draw_scenes(images[test], candidates[test], predicted, truth[test])


def draw_scenes(images, candidates, predicted, truth) -> None:
    """Three scenes: what the network sees, what it is told, what it says, and the truth."""
    colors = torch.tensor([[0.85, 0.85, 0.82], [0.82, 0.29, 0.36], [0.05, 0.38, 0.77]])
    # A pixel with several candidates has their mean color.
    told = torch.einsum("nkhw,kc->nhwc", candidates.float(), colors) / candidates.sum(1)[..., None]
    columns = {
        "image": images.movedim(1, -1).clamp(0, 1),
        "candidates": told,
        "prediction": colors[predicted],
        "truth": colors[truth],
    }
    with picture("segmentation_with_candidate_masks", (5.2, 4.2)) as figure:
        grid = figure.subplots(3, 4)
        for column, (title, pixels) in enumerate(columns.items()):
            grid[0, column].set_title(title, fontsize=11, color=MUTED)
            for row in range(3):
                grid[row, column].imshow(pixels[row].numpy())
                hide_frame(grid[row, column])


if __name__ == "__main__":
    main()
