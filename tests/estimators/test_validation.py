"""What estimators say about features that they cannot use."""

import pandas as pd
import pytest

from propall import PartialLabelClassifier, PartialLabelPortfolio


@pytest.mark.parametrize("model", [PartialLabelClassifier(epochs=1), PartialLabelPortfolio("quick")])
def test_columns_with_text_are_named(model) -> None:
    frame = pd.DataFrame(
        {"wing": [7.0, 5.0], "habitat": ["field", "coast"], "seen": ["2020-01-02", "2020-01-03"]}
    )
    message = r"X: got columns with text \('habitat', 'seen'\); expected numbers .*Encode them"
    with pytest.raises(ValueError, match=message):
        model.fit(frame, ["robin", "wren"])
    with pytest.raises(ValueError, match=r"X: got text; expected numbers \(could not convert .*'field'"):
        model.fit(frame[["habitat"]].to_numpy(), ["robin", "wren"])
