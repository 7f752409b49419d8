"""Views in a plain PyTorch loop: few images with seven candidates each, with and without views."""

import torch
from pictures import MUTED, hide_frame, picture
from sklearn.datasets import load_digits
from torch import nn

from propall import ConsistencyLoss, ImageViews, ProPaLLLoss
from propall.methods.propall import ProPaLL

EPOCHS, BATCH = 25, 64


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def train(images: torch.Tensor, candidates: torch.Tensor, *, with_views: bool) -> nn.Sequential:
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    augment = ImageViews(images)  # digits are gray and tiny: no mirroring, gentle operations
    plain, consistent = ProPaLLLoss(noise=1.0), ConsistencyLoss(ProPaLL(noise=0), augment.views)
    for epoch in range(EPOCHS):
        for index in torch.randperm(len(images)).split(BATCH):
            sets, progress = candidates[index], epoch / EPOCHS
            if with_views:
                views = augment(images[index], index, epoch=epoch)
                weak, strong = net(torch.cat(views)).chunk(2)
                loss = consistent(weak, strong, sets, progress=progress)
            else:
                loss = plain(net(images[index]), sets, progress=progress)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return net.eval()


def main() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    truth = torch.tensor(digits.target)
    draw = torch.Generator().manual_seed(0)
    # Every wrong label is a candidate with probability 0.7.
    candidates = torch.rand(len(truth), 10, generator=draw) < 0.7
    candidates[torch.arange(len(truth)), truth] = True
    rows = torch.randperm(len(truth), generator=draw)
    fit, test = rows[:600], rows[600:]
    print(f"{candidates[fit].sum(1).float().mean():.1f} of 10 labels are candidates, {len(fit)} images")
    for with_views in (False, True):
        net = train(images[fit], candidates[fit], with_views=with_views)
        with torch.no_grad():
            accuracy = (net(images[test]).argmax(1) == truth[test]).float().mean()
        print(f"test accuracy {'with' if with_views else 'without'} views: {accuracy:.3f}")
    draw_views(images[fit[:6]])


def draw_views(images: torch.Tensor) -> None:
    """Six digits with a weak and a strong view of each."""
    weak, strong = ImageViews(images)(images, torch.arange(len(images)), epoch=0)
    rows = {"image": images, "weak view": weak, "strong view": strong}
    with picture("views_in_a_custom_loop", (5.2, 2.8)) as figure:
        grid = figure.subplots(len(rows), len(images))
        for line, (title, pixels) in enumerate(rows.items()):
            for axes, digit in zip(grid[line], pixels, strict=True):
                axes.imshow(digit[0].numpy(), cmap="gray_r", vmin=0, vmax=1)
                hide_frame(axes)
            grid[line, 0].set_ylabel(title, rotation=0, ha="right", va="center", color=MUTED)


if __name__ == "__main__":
    main()
