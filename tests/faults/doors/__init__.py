"""Every door through which files come in, by group."""

from tests.faults.doors import text_tables

DOORS = {door.name: door for group in (text_tables,) for door in group.DOORS}
