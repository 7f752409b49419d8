"""How long something took, or may take, in the units a person would use."""


def human_time(seconds: int | float) -> str:
    """A time that was measured: `0.31 s`, `12 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rough_time(seconds: int | float) -> str:
    """An estimate, or a headline, with no more digits than it deserves: `5 s`, `2 min`, `2.0 h`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 60 else f"{minutes / 60:.1f} h"
