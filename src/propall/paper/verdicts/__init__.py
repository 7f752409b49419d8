"""The paper's claims, judged by fixed rules from stored results alone.

Accuracies of two methods are compared with the paired t-test over two or more seeds or folds at level
`ALPHA`; times come from one long run per method, alone on the device. Only each table's judged protocols
count toward a verdict; the others are listed. A claim without results is "not measured".
"""

from propall.paper.evidence import Evidence
from propall.paper.verdicts.accuracy import judge_noise, judge_robustness, judge_superiority
from propall.paper.verdicts.claim import ALPHA, Claim, Verdict, compare
from propall.paper.verdicts.class_order import judge_class_order
from propall.paper.verdicts.critical_differences import judge_critical_differences
from propall.paper.verdicts.speed import judge_speed

__all__ = ["ALPHA", "Claim", "Verdict", "compare", "judge_claims"]


def judge_claims(evidence: Evidence) -> list[Claim]:
    """Judge all claims, in the paper's order."""
    return [
        judge_superiority(evidence),
        judge_robustness(evidence),
        judge_noise(evidence),
        judge_speed(evidence),
        judge_class_order(evidence),
        *judge_critical_differences(evidence),
    ]
