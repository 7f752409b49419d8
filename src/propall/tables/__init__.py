"""Tables with ambiguous labels, from file to model; behind `propall inspect`, `fit`, `resolve` and the like.

- `reading`, `writing`: table files; every repair is a `DataNote`.
- `label_source`, `label_columns`, `spelling`: where the labels are, reading them, and typos in their names.
- `features`, `images`: the other columns as features.
- `summary`: columns and labels at a glance.
- `fitting`, `learning_curves`: select and train a model; `model`: `TableModel`, saved as a folder.
- `larger_than_memory`, `label_cells`: fit a table in parts; `streaming`: predict and resolve it in parts.
- `resolution`, `consensus`, `evaluation`, `export`: what a model is used for.

Most users need `open_table`, `fit_table`, `resolve_file` and `TableModel`.
"""
