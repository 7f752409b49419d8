"""Decode text files: Unicode is recognized, Western text guessed; other encodings must be named."""

import re
import unicodedata
from itertools import pairwise
from typing import NamedTuple

#: Byte order marks; those of UTF-32 begin with those of UTF-16, so they come first.
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
#: Zeros among the first bytes of UTF-16 and UTF-32 without a mark, if the text begins with ASCII.
_ZEROS = (
    ((1, 1, 1, 0), "utf-32-be"),
    ((0, 1, 1, 1), "utf-32-le"),
    ((1, 0), "utf-16-be"),
    ((0, 1), "utf-16-le"),
)
#: Encodings that an error suggests if the text is valid in them.
SUGGESTED = ("cp1251", "koi8-r", "shift_jis", "euc_jp", "gb18030", "big5", "euc_kr", "cp1250", "cp1252")
#: Largest share of character groups that are unusual in a text taken for Windows-1252.
_UNUSUAL_SHARE = 0.1
#: Signs of Windows-1252 that occur in ordinary text, apart from letters.
_USUAL_SIGNS = frozenset("’‘“”„–—…€£¥°±²³µ§©®™«»·¼½¾¿¡ªº´•×\xa0")


class DecodedText(NamedTuple):
    """The text of a file, and a remark if its encoding was guessed."""

    text: str
    remark: str = ""


def decode_text(data: bytes, name: str, encoding: str | None = None) -> DecodedText:
    """Decode the bytes of a text file; `name` is the file in error messages.

    Without `encoding`, the text is UTF-8, UTF-16, UTF-32, or Windows-1252 if it reads like Western text.
    """
    if encoding is not None:
        return DecodedText(_checked(_decode_as(data, encoding, name), name))
    unicode = _unicode_encoding(data)
    try:
        return DecodedText(_checked(data.decode(unicode), name))
    except UnicodeDecodeError as error:
        if unicode != "utf-8-sig":
            raise ValueError(
                f"file: {name} begins like {unicode.upper()}, but byte {error.start + 1} is invalid; it is "
                "damaged. Save it again, as UTF-8."
            ) from None
        line = data.count(b"\n", 0, error.start) + 1
    western = data.decode("cp1252", errors="replace")
    if _reads_like_western_text(western):
        remark = f"{name} is not UTF-8 (line {line}); read as Windows-1252"
        return DecodedText(_checked(western, name), remark)
    raise ValueError(
        f"file: {name} is not UTF-8 (line {line}) and its encoding is unknown{_samples(data)}. Save it as "
        "UTF-8, or name the encoding: --encoding NAME."
    )


def _unicode_encoding(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    for zeros, encoding in _ZEROS:
        if tuple(byte == 0 for byte in data[: len(zeros)]) == zeros:
            return encoding
    return "utf-8-sig"


def _decode_as(data: bytes, encoding: str, name: str) -> str:
    try:
        text = data.decode(encoding)
    except LookupError:
        raise ValueError(
            f"encoding: {encoding!r} is unknown; expected a name such as utf-8 or {', '.join(SUGGESTED)}."
        ) from None
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise ValueError(
            f"encoding: {name} is not {encoding} (line {line}); try another encoding{_samples(data)}."
        ) from None
    return text.removeprefix("\ufeff")


def _checked(text: str, name: str) -> str:
    at = text.find("\0")
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise ValueError(
            f"file: {name}, line {line} holds a NUL character; it is damaged or not a text file. Save it "
            "again as UTF-8."
        )
    return text


def _reads_like_western_text(text: str) -> bool:
    """Whether letters outside ASCII are single or pairs in lower case, as in `Möwe` and `créé`."""
    if "\ufffd" in text:  # a byte that means nothing in Windows-1252
        return False
    groups = list(re.finditer(r"[^\x00-\x7f]+", text))
    unusual = sum(not _is_usual(group) for group in groups)
    return unusual <= _UNUSUAL_SHARE * len(groups)


def _is_usual(group: re.Match[str]) -> bool:
    signs, text = group[0], group.string
    letters = "".join(sign for sign in signs if sign not in _USUAL_SIGNS)
    if not all(sign.isalpha() and sign not in "ƒˆ" for sign in letters):
        return False
    around = text[max(0, group.start() - 1) : group.end() + 1]
    if any(_is_unusual_pair(before, after) for before, after in pairwise(around)):
        return False
    return len(letters) < 2 or (len(letters) == 2 and letters.islower()) or len(letters) < len(signs) / 2


def _is_unusual_pair(before: str, after: str) -> bool:
    """Whether a capital follows a small letter, or a letter a raised number: a sign of another encoding."""
    return (before.islower() and after.isupper()) or (before in "¹²³¼½¾±´" and after.isalpha())


def _samples(data: bytes) -> str:
    """Show the first word outside ASCII in the encodings in which the whole file is valid text."""
    samples = {}
    for encoding in SUGGESTED:
        try:
            text = data.decode(encoding)
        except UnicodeError:
            continue
        if word := re.search(r"\w*[^\W\x00-\x7f]\w*", text):
            samples[encoding] = (_oddity(text), word[0][:20])
    likely = sorted(samples, key=lambda encoding: samples[encoding][0])[:3]
    shown = ", ".join(f"{encoding} would read {samples[encoding][1]!r}" for encoding in likely)
    return f" ({shown})" if shown else ""


def _oddity(text: str) -> float:
    """Return the share of characters outside ASCII that are no letters, or upper case after lower case."""
    foreign = [(before, sign) for before, sign in pairwise(text) if sign > "\x7f"][:10_000]
    odd = sum(
        unicodedata.category(sign)[0] not in "LM" or (sign.isupper() and before.islower())
        for before, sign in foreign
    )
    return odd / max(1, len(foreign))
