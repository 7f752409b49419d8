"""Charts, tables and HTML pages built from plain data."""
