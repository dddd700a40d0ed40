"""Values in the digits, with the dashes and behind the labels of many scripts."""

# ruff: noqa: RUF001 - signs of many scripts
import unicodedata

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed

VALUES = {
    "+44 20 7946 0958": "[PHONE]",
    "212-555-0187": "[PHONE]",
    "(02) 9374 4000": "[PHONE]",
    "123-45-6789": "[SSN]",
    "4111 1111 1111 1111": "[CREDIT_CARD]",
    "GB82 WEST 1234 5698 7654 32": "[IBAN]",
    "8.8.8.8": "[IP]",
    "jo1985@doe.org": "[EMAIL]",
}
ZEROS = [code for code in range(0x3000) if unicodedata.decimal(chr(code), -1) == 0] + [0xFF10]
LABELS = {
    "Tamil": "தொலைபேசி:",
    "Telugu": "ఫోన్:",
    "Kannada": "ಮೊಬೈಲ್",
    "Malayalam": "ഫോൺ:",
    "Gujarati": "મોબાઇલ:",
    "Panjabi": "ਫ਼ੋਨ:",
    "Odia": "ଫୋନ:",
    "Sinhala": "දුරකථන",
    "Marathi": "दूरध्वनी:",
    "Burmese": "ဖုန်း",
    "Burmese, without a space": "ဖုန်းနံပါတ်",
    "Khmer": "ទូរស័ព្ទ",
    "Lao": "ໂທລະສັບ",
    "Armenian": "Հեռ.՝",
    "Amharic": "ስልክ፡",
    "Mongolian": "Утас:",
    "Belarusian": "тэл.",
    "Catalan": "Telèfon:",
    "Pashto": "ټیلیفون:",
}


def test_values_in_the_digits_of_all_scripts_go() -> None:
    kept = {}
    for zero in ZEROS:
        for value, placeholder in VALUES.items():
            written = value.translate({ord("0") + digit: zero + digit for digit in range(10)})
            if (found := scrubbed(f"Hello, {written} thanks.")) != f"Hello, {placeholder} thanks.":
                kept[hex(zero), value] = found
    assert kept == {}


@pytest.mark.parametrize("dash", "ー―─━–—－−‐‑﹣ㅡ")
def test_a_dash_of_any_script_parts_the_groups_of_a_number(dash: str) -> None:
    number = f"03{dash}3987{dash}6543"
    wide = number.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})
    for written in (number, wide):
        assert scrubbed(f"電話 {written} です") == "電話 [PHONE] です"


def test_what_is_a_dash_only_between_digits_stays_a_letter() -> None:
    for text in ("サーバー 3ー 5", "コーヒー・センター", "─────── 12 ───────", "ㅡ 10ㅡ"):
        assert scrubbed(text) == text


@pytest.mark.parametrize("language", LABELS)
def test_a_label_of_any_language_names_a_number(language: str) -> None:
    label = LABELS[language]
    assert scrubbed(f"{label} 98460 81242.") == f"{label} [PHONE]."


@pytest.mark.parametrize(
    "address", ["राम@उदाहरण.भारत", "ram@उदाहरण.भारत", "jo@example.ভারত", "สมชาย@ตัวอย่าง.ไทย", "ram@உதாரணம்.இந்தியா"]
)
def test_a_domain_may_be_in_the_script_of_a_country(address: str) -> None:
    assert scrubbed(f"mail: {address}, 12") == "mail: [EMAIL], 12"


def test_letters_that_only_look_like_a_domain_in_a_script_stay() -> None:
    for text in ("राम@श्याम.यह एक वाक्य है", "@उदाहरण.भारत", "ราคา 5@10.บาท"):
        assert scrubbed(text) == text
