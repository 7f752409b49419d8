import pytest
import torch

from propall.methods.op import OP, op_loss


def test_probabilities_of_the_excluded_label_sum_to_one_and_preserve_the_order():
    logits = torch.randn(5, dtype=torch.float64)
    losses = op_loss(logits.expand(5, 5), ~torch.eye(5).bool())  # row i excludes label i
    assert (-losses).exp().sum().item() == pytest.approx(1, abs=1e-14)
    torch.testing.assert_close(losses - losses[0], logits - logits[0])
    assert losses.argsort().equal(logits.argsort())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits(dtype):
    logits = torch.tensor([[8192, 0, -8192], [-8192, 0, 8192]], dtype=dtype, requires_grad=True)
    losses = op_loss(logits, torch.tensor([[0, 1, 1], [0, 1, 1]]).bool())
    assert losses.tolist() == [2 * 8192.0, 0.0]
    losses.sum().backward()
    assert logits.grad.tolist() == [[1, 0, -1], [0, 0, 0]]


def test_refuses_other_than_one_excluded_label():
    candidates = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    with pytest.raises(ValueError, match=r"2 of 3 rows .* \(first: 1, which excludes 0\); OP .* Use l_w"):
        OP().init(candidates)
