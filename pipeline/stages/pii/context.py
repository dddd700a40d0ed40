"""Words near a number that say what it is. Seven digits or an unbroken run are personal only near such a
word.

The search stops at a digit, at "@" and at a square bracket, because a word before another value describes
that value.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte
from pipeline.stages.pii.characters import FLAGS, LETTER, is_digit

_KEY_BYTES = 7
_ENDS_SEARCH = byte.byte_set(b"0123456789@[]")
_ENDS_SEARCH_AFTER = byte.byte_set(b"0123456789@\n[]")
_BEFORE_LABEL = byte.byte_set(b" -(")
_BEFORE_VERSION = byte.byte_set(b" =:\"',.(#")


def keys(words: str) -> np.ndarray:
    """One integer for each lower-case word: its first 7 UTF-8 bytes, big-endian."""
    return np.array(
        sorted({int.from_bytes(word.encode()[:_KEY_BYTES], "big") for word in words.split()}), dtype=np.int64
    )


PHONE_WORDS = keys(
    "phone phones telephone tel teleph ph mobile mob cell cellphone cellular fax telefax desk office contact "
    "call called calling calls caller dial dialed dialing sms text texted whatsapp viber signal voicemail "
    "message messages answer answering hotline helpline landline reach ring rang pager callback telefon "
    "telefonnummer handy mobil mobilnummer rufnummer anruf anrufen rufen festnetz tél téléphone portable "
    "appelez appeler teléfono telefono móvil movil celular llame llamar telefone telemóvel ligue ligar "
    "cellulare chiamare chiama fisso telefoon mobiel bellen puhelin gsm numer komórka телефон тел звоните "
    "звонить позвоните моб мобильный 电话 手机 電話 携帯 전화"
)
PHONE_LABELS_AFTER = keys("office fax mobile cell phone tel telephone desk home work voice landline")
SSN_WORDS = keys("ssn ssns social security socialsecurity")
CARD_WORDS = keys(
    "card cards cc ccn credit debit visa mastercard amex maestro discover diners jcb unionpay pan cvv cvc "
    "pay paid payment payments bill billing charge charged charges declined expires expiry kreditkarte karte "
    "carte tarjeta cartão carta karta kort"
)
IP_WORDS = keys(
    "ip ips ipv4 address addresses addr dns nameserver resolver host hosts hostname server servers gateway "
    "router proxy subnet netmask ping pinged pinging traceroute ssh telnet curl connect connected connection "
    "blocked banned"
)
VERSION_WORDS = keys(
    "version versions ver vers release releases released firmware driver build rev revision section sections "
    "sec chapter table figure fig appendix clause paragraph oid oids patch update article annex item rule "
    "step kernel linux"
)
_CONNECTIVES = keys("and or to through from than before after until is of number no nr")


@borrowing
def _is_letter(c: int) -> bool:
    return FLAGS[c] & LETTER != 0 or c >= 0x80


@borrowing
def key(data: np.ndarray, start: int, end: int) -> int:
    """The key, as `keys` makes it, of the word `data[start:end]` in any case."""
    made = 0
    for i in range(start, min(end, start + _KEY_BYTES)):
        c = data[i]
        made = made * 256 + (c | byte.CASE if c < 0x80 else c)
    return made


@borrowing
def is_among(numbers: np.ndarray, number: int) -> bool:
    for i in range(len(numbers)):  # noqa: SIM110 - any() over a generator does not compile
        if numbers[i] == number:
            return True
    return False


@borrowing
def is_one_of(data: np.ndarray, start: int, end: int, words: np.ndarray) -> bool:
    """Whether `data[start:end]` is one of `words`, in any case."""
    return is_among(words, key(data, start, end))


@borrowing
def word_near_before(data: np.ndarray, i: int, words: np.ndarray, reach: int) -> bool:
    """Whether one of `words` ends in the `reach` bytes before `i`, on the same line or the one above."""
    floor = max(0, i - reach)
    lines = 0
    while i > floor:
        c = data[i - 1]
        if _is_letter(c):
            end = i
            while i > floor and _is_letter(data[i - 1]):
                i -= 1
            cut = i == floor and i > 0 and _is_letter(data[i - 1])
            if not cut and is_one_of(data, i, end, words):
                return True
            continue
        if c == byte.NEWLINE:
            lines += 1
        if lines > 1 or _ENDS_SEARCH[c]:
            return False
        i -= 1
    return False


@borrowing
def word_near_after(data: np.ndarray, i: int, hi: int, words: np.ndarray, reach: int) -> bool:
    """Whether one of `words` begins in the `reach` bytes from `i`, before the end of the line or sentence and
    before another value.
    """
    stop = min(hi, i + reach)
    while i < stop:
        c = data[i]
        if _is_letter(c):
            start = i
            while i < hi and i - start <= reach and _is_letter(data[i]):
                i += 1
            if is_one_of(data, start, i, words):
                return True
            continue
        sentence_ends = c == byte.DOT and i + 1 < hi and data[i + 1] == byte.SPACE
        if sentence_ends or _ENDS_SEARCH_AFTER[c]:
            return False
        i += 1
    return False


@borrowing
def label_after(data: np.ndarray, i: int, hi: int) -> bool:
    """Whether a word such as "office" or "fax" follows directly: "555 1234 (fax)", "555 1234-Office"."""
    steps = 0
    while i < hi and steps < 3 and _BEFORE_LABEL[data[i]]:
        i += 1
        steps += 1
    end = i
    while end < hi and end - i < 12 and _is_letter(data[end]):
        end += 1
    return end > i and steps > 0 and is_one_of(data, i, end, PHONE_LABELS_AFTER)


@borrowing
def names_a_version(data: np.ndarray, i: int) -> bool:
    """Whether words before the dotted number at `i` call it a version or a section.

    "version 1.2.3.4", "sections 1.2.3.4 and 1.2.3.5".
    """
    floor = max(0, i - 64)
    while i > floor:
        c = data[i - 1]
        if _BEFORE_VERSION[c]:
            i -= 1
        elif is_digit(c):
            run = dots = 0
            while i > floor and (is_digit(data[i - 1]) or data[i - 1] == byte.DOT):
                i -= 1
                run = run + 1 if data[i] != byte.DOT else 0
                dots += data[i] == byte.DOT
                if run > 3 or dots > 3:
                    return False
        elif FLAGS[c] & LETTER:
            end = i
            while i > floor and FLAGS[data[i - 1]] & LETTER:
                i -= 1
            if is_one_of(data, i, end, VERSION_WORDS):
                return True
            if not is_one_of(data, i, end, _CONNECTIVES):
                return False
        elif c == 0xA7:  # the second byte of "§"
            return i - 2 >= 0 and data[i - 2] == 0xC2
        else:
            return False
    return False
