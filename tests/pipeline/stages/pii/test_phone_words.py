"""Telephone numbers that words of many languages name, and numbers that these words do not."""

import pytest

from tests.pipeline.stages.pii.test_kinds import scrubbed

GOES = {
    "labels": {
        "Tālr.: 67 132 566": "Tālr.: [PHONE]",
        "Faksas 8 5 379 8930": "Faksas [PHONE]",
        "Farsími: 896-4455": "Farsími: [PHONE]",
        "ტელ: 599 26 07 79": "ტელ: [PHONE]",
        "ফোন: ০২ ৭৮৫৫৩০২৪": "ফোন: [PHONE]",
        "फ़ोन: 98706 58694": "फ़ोन: [PHONE]",
        "الهاتف: 800 9167": "الهاتف: [PHONE]",
        "客服热线 400 092 7173": "客服热线 [PHONE]",
        "โทร. ๐๒ ๒๖๙๒ ๗๐๘๓": "โทร. [PHONE]",
        "Tel/Fax: 9846 608 542": "Tel/Fax: [PHONE]",
        "No. HP: 081220257600": "No. HP: [PHONE]",
        "Fax 1588-1329": "Fax [PHONE]",
    },
    "a number that is somebody's": {
        "My number is 9648 4228, ask for Ann.": "My number is [PHONE], ask for Ann.",
        "Mi número es el 657 348 838.": "Mi número es el [PHONE].",
        "Мой номер 8-981-638-60-21.": "Мой номер [PHONE].",
        "Nummeret mitt er 22 65 94 68.": "Nummeret mitt er [PHONE].",
        "αριθμός μου είναι 6942 373 410.": "αριθμός μου είναι [PHONE].",
        "मेरा नंबर 98641 41438 है।": "मेरा नंबर [PHONE] है।",
        "Mano numeris yra 8 695 70918.": "Mano numeris yra [PHONE].",
    },
    "what one is asked to do": {
        "Puede contactarnos en el 657348838 de lunes a viernes.": (
            "Puede contactarnos en el [PHONE] de lunes a viernes."
        ),
        "Ring til mig på 22-33-65-08.": "Ring til mig på [PHONE].",
        "Επικοινωνήστε μαζί μας στο 6942 373 410.": "Επικοινωνήστε μαζί μας στο [PHONE].",
        "Позвоните мне по номеру 8-981-638-60-21.": "Позвоните мне по номеру [PHONE].",
        "请拨打13537419079联系我们。": "请拨打[PHONE]联系我们。",
        "문의는 02)652-4144으로 해주세요.": "문의는 [PHONE]으로 해주세요.",
    },
    "pairs of digits before a word that could be a byte": {
        "Appelez-moi au 06 20 57 46 30 ce soir.": "Appelez-moi au [PHONE] ce soir.",
        "joignable au 06 20 57 46 30 de 8 h à 18 h": "joignable au [PHONE] de 8 h à 18 h",
    },
}

STAYS = {
    "prices and counts": [
        "手机售价1234567元",
        "Телефон стоит 1690818107.",
        "Il telefono costa 1234567.",
        "Mobil: 1 234 569,50 €",
        "My order number is 12345678.",
    ],
    "words that only begin like one for a telephone": ["Поздно 123-45-67", "Позиция 1690818107"],
    "bytes of a dump": [
        "01 20 00 04 80 fe ed",
        "de ad 06 20 57 46 30",
        "06 20 57 46 30 4e",
        "1a 06 20 57 46 30",
    ],
    "years": ["Tel Aviv 1909-1948", "Mobile 1702-1711"],
}


@pytest.mark.parametrize("how", GOES)
def test_a_telephone_number_goes_by_words_of_many_languages(how: str) -> None:
    assert {text: scrubbed(text) for text in GOES[how]} == GOES[how]


@pytest.mark.parametrize("what", STAYS)
def test_a_number_beside_such_words_stays(what: str) -> None:
    assert [text for text in STAYS[what] if scrubbed(text) != text] == []


def test_a_domain_may_end_in_a_label_of_chinese_or_korean() -> None:
    assert scrubbed("请写信到jo@例子.公司谢谢, a@예.한국로") == "请写信到[EMAIL]谢谢, [EMAIL]로"
