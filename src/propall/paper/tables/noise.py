"""Table 8 and the appendix: ProPaLL with and without noise in the settings of the other tables."""

from dataclasses import replace

from propall.paper.specs import TIMED
from propall.paper.tables import candidates5, candidates10, complementary, instance, real, uniform
from propall.paper.tables.baselines import NOISE_ROWS
from propall.paper.tables.paper_table import PaperTable


def _noise_table(table: PaperTable, title: str, remark: str | None = None) -> PaperTable:
    return replace(
        table,
        name=f"noise_{table.name}",
        title=title,
        rows=NOISE_ROWS,
        protocols={name: how for name, how in table.protocols.items() if name != TIMED},
        remark=table.remark if remark is None else remark,
    )


TABLES = (
    _noise_table(real.TABLE, "Table 8: noise, real-world candidate sets", real.SPLIT_UNKNOWN),
    _noise_table(uniform.TABLE, "Appendix: noise, uniform candidate sets"),
    _noise_table(instance.TABLE, "Appendix: noise, instance-dependent candidate sets"),
    _noise_table(candidates10.TABLE, "Appendix: noise, exactly n candidates of ten classes"),
    _noise_table(candidates5.TABLE, "Appendix: noise, exactly n candidates of five classes"),
    _noise_table(complementary.TABLE, "Appendix: noise, one complementary label", complementary.REPORTED),
)
