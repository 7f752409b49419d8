"""Recordings of birds of which most were identified only to the genus: learn the species from all of them.

The recordings are generated: a spectrum with three peaks, whose frequencies depend on the species.
"""

import numpy as np
from pictures import MUTED, SERIES, bars, picture

from propall import CandidateLabels, PartialLabelClassifier

# Frequencies of the peaks in kHz. Species of a genus differ in one of them.
PEAKS = {
    "Larus": {
        "herring gull": (1.0, 2.2, 3.5),
        "common gull": (1.0, 2.8, 3.5),
        "little gull": (1.0, 2.2, 4.6),
    },
    "Sterna": {
        "common tern": (2.5, 4.0, 5.5),
        "arctic tern": (2.5, 4.6, 5.5),
        "roseate tern": (1.9, 4.0, 5.5),
    },
    "Tringa": {"redshank": (1.8, 3.4, 4.2), "greenshank": (2.3, 3.4, 4.2), "wood sandpiper": (1.8, 3.4, 5.0)},
}
GENUS = {species: genus for genus, members in PEAKS.items() for species in members}
FREQUENCIES = np.linspace(0.5, 6.5, 48)


def recordings(n: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Spectra and species of n birds."""
    species = draw.choice(list(GENUS), n)
    peaks = np.array([PEAKS[GENUS[name]][name] for name in species]) + draw.normal(0, 0.12, (n, 3))
    loudness = draw.gamma(4, 0.25, (n, 3))
    bells = np.exp(-(((FREQUENCIES[:, None] - peaks[:, None]) / 0.25) ** 2))
    return (bells * loudness[:, None]).sum(-1) + draw.normal(0, 0.35, (n, 48)), species


def main() -> None:
    draw = np.random.default_rng(0)
    X, species = recordings(600, draw)
    X_test, species_test = recordings(2000, draw)
    # Nine of ten labels name only the genus.
    names = np.where(draw.random(len(species)) < 0.9, [GENUS[name] for name in species], species)
    tree = {genus: list(members) for genus, members in PEAKS.items()}
    labels = CandidateLabels.from_hierarchy(tree, names)
    print("labels:    ", ", ".join(names[:5]), "...")
    print("candidates:", ", ".join(labels.strings()[:2]), "...")

    precise = np.isin(names, labels.classes)
    scores = {}
    for method in ("propall", "cc"):
        clf = PartialLabelClassifier(method, "mlp", epochs=40, random_state=0)
        scores[f"{method}, {precise.sum()} with a species"] = clf.fit(X[precise], labels[precise]).score(
            X_test, species_test
        )
        scores[f"{method}, all {len(X)}"] = clf.fit(X, labels).score(X_test, species_test)
    for name, score in scores.items():
        print(f"{name}: {score:.3f}")
    draw_spectra(X, species, scores)


def draw_spectra(X, species, scores) -> None:
    """Three recordings of each tern, and the test accuracies."""
    with picture("species_by_genus", (5.2, 4.8)) as figure:
        spectra, results = figure.subplots(2, height_ratios=(3, 2))
        for line, (name, color) in enumerate(zip(PEAKS["Sterna"], SERIES, strict=False)):
            for recording in X[species == name][:3]:
                spectra.plot(FREQUENCIES, recording + 4 * line, color=color, lw=1)
            spectra.annotate(name, (0.5, 4 * line + 1.2), color=color)
        spectra.set_yticks([])
        spectra.spines["left"].set_visible(False)
        spectra.set_xlabel("kHz")
        spectra.set_title("three recordings of each Sterna", loc="left", fontsize=10, color=MUTED)
        best = max(scores, key=lambda name: scores[name])
        bars(results, scores, accent=best)
        results.set_title("test accuracy", loc="left", fontsize=10, color=MUTED)


if __name__ == "__main__":
    main()
