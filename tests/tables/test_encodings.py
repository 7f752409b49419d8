"""Text in any encoding is read correctly or refused, never turned into other letters without a word."""

import pytest

from propall.tables.encodings import decode_text

RUSSIAN = "text,label\nмаленькая серая птица,чайка\nбольшая чёрная птица,ворона\n"
JAPANESE = "text,label\n小さな灰色の鳥,カモメ\n大きな黒い鳥,カラス\n"
CHINESE = "text,label\n小灰鸟,海鸥\n大黑鸟,乌鸦\n"
WESTERN = "text,label\nune créature grisâtre,Möwe\nça a été créé,Krähe\n50 € “net”,naïve Fée\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (CHINESE, "gb18030"),
    ],
)
def test_other_encodings_are_refused_with_a_suggestion(text: str, encoding: str) -> None:
    data = text.encode(encoding)
    word = text.split()[0].partition("\n")[2] or text.split("\n")[1].split(",")[0].split()[0]
    with pytest.raises(ValueError, match=r"t.csv is not UTF-8 \(line 2\).*--encoding NAME") as refusal:
        decode_text(data, "t.csv")
    assert f"{encoding} would read '{word}" in str(refusal.value)
    assert decode_text(data, "t.csv", encoding) == (text, "")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("text", [RUSSIAN, JAPANESE, WESTERN])
def test_unicode_is_recognized(text: str, encoding: str) -> None:
    assert decode_text(text.encode(encoding), "t.csv") == (text, "")


@pytest.mark.parametrize("encoding", ["utf-32-le", "utf-32-be"])
def test_utf_32_without_a_mark(encoding: str) -> None:
    assert decode_text(RUSSIAN.encode(encoding), "t.csv").text == RUSSIAN


def test_western_text_is_guessed_with_a_remark() -> None:
    text, remark = decode_text(WESTERN.encode("cp1252"), "t.csv")
    assert text == WESTERN
    assert remark == "t.csv is not UTF-8 (line 2); read as Windows-1252"


@pytest.mark.parametrize("word", ["łódź", "žluťoučký"])
def test_letters_that_would_become_signs_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"encoding is unknown.*cp1250 would read"):
        decode_text(f"x,label\n1,{word}\n".encode("cp1250"), "t.csv")


def test_damaged_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"t.csv, line 2 holds a NUL character"):
        decode_text(b"a,b\n1,\0\n", "t.csv")
    with pytest.raises(ValueError, match=r"begins like UTF-16, but byte \d+ is invalid"):
        decode_text("a,b".encode("utf-16") + b"x", "t.csv")
    mixed = "Möwe,Krähe,Fée\n".encode() + b"M\xf6we\n"  # UTF-8 with one line in another encoding
    with pytest.raises(ValueError, match=r"not UTF-8 \(line 2\)"):
        decode_text(mixed, "t.csv")


def test_a_wrong_or_unknown_encoding() -> None:
    with pytest.raises(ValueError, match=r"encoding: 'latin-99' is unknown; expected"):
        decode_text(b"abc", "t.csv", "latin-99")
    with pytest.raises(ValueError, match=r"encoding: 'zlib' is unknown"):
        decode_text(b"abc", "t.csv", "zlib")
    with pytest.raises(ValueError, match=r"encoding: t.csv is not utf-8 \(line 2\)"):
        decode_text(RUSSIAN.encode("cp1251"), "t.csv", "utf-8")
