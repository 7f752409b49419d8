"""Every door through which files come in, by group."""

from tests.faults.doors import binary_tables, data_files, label_files, models, text_tables

GROUPS = (text_tables, binary_tables, label_files, models, data_files)
DOORS = {door.name: door for group in GROUPS for door in group.DOORS}
