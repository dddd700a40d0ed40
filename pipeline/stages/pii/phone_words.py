"""Words that say that a number is a telephone number, and how closely they belong to it.

The search goes back from the number to the first such word. It stops at a digit, at "@" and at a square
bracket, because a word before another value describes that value, and at a word such as "order" or "page",
which says that the number is something else.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.pii.context import ENDS_SEARCH, TOUCHING, is_among, key, keys, named_before

NOT_NAMED, MENTIONED, ASIDE, NEAR, ADDRESSED, NAMED = range(6)
_REACH = 40  # characters
_TAG_REACH = 24
_IN_TAG = char.LETTERS | byte.byte_set(b"/")
_POINTS = byte.byte_set(b":|;=\t")  # what a label or a cell ends with
_MOST_LINES = 1

# They mean nothing else.
_WORDS = keys(
    "phone phones telephone tel tels tele telph telno teleph ph phn cellphone cellular fax faxes telefax "
    "facsimile mobile mobil whatsapp viber sms hotline helpline landline voicemail voice callback mob "
    "telefon telefonnummer telefonnr tlf tlfnr tfn fon handy handynr handynummer mobilnummer mobilnr "
    "rufnummer rufnr durchwahl festnetz mobilfunk anruf anrufen rufen tél téléphone télécopie télécopieur "
    "appelez appeler rappeler tfno telf teléf teléfono teléfonos telefono telefonos telefóno móvil movil "
    "cel celular celulares llame llamar llámame llámenos llama telefone telefones fone telemóvel telemovel "
    "tlm ligar ligue cellulare cellulari chiamare chiama chiamaci chiamami chiamateci telefoon "
    "telefoonnummer mobiel mobielnummer bellen bel gsm puhelin puh puhelinnumero matkapuhelin soita telp "
    "telepon ponsel komórka komórkowy kom faks zadzwoń dzwonić mobiltelefon telefonszám telefonul telefonu "
    "cep volejte zavolejte sími điện sđt đt телефон телефону телефоны телефона тел звоните звонить "
    "позвоните моб мобильный мобильного факс сот телефонуйте телефонувати мобільний дзвоніть τηλ τηλέφωνο "
    "τηλέφωνα κινητό κιν φαξ טלפון טל נייד פקס هاتف تلفون جوال موبايل فاكس فون फोन मोबाइल दूरभाष โทร "
    "โทรศัพท์ มือถือ notruf infolinia tālr tālrunis tālruni tālruņa faksas faksi skambinkite skambinti "
    "helista helistage síma símanúmer farsími hringdu hringið ტელ ტელეფონი ტელეფონის მობ მობილური ұялы ফোন "
    "মোবাইল টেলিফোন موبائل تلفن موبایل همراه فکس تماس الهاتف هاتفي هاتفه الجوال جوالي جواله فونه फ़ोन "
    "แฟกซ์ เบอร์ komórki komórkę komórce telef telefón selfoon simu zavolajte volajte mobitel mobitela "
    "numaram számom számunk numeroni hívjon hívj hívja dzwoń dzwońcie καλέστε τηλεφώνου κινητού звони "
    "звоню звонок звонки телефоні дзвонити дзвони мобилен мобилни мобильн мобільного הטלפון בטלפון לטלפון "
    "தொலைபேசி கைபேசி செல்பேசி அலைபேசி போன் ஃபோன் மொபைல் ఫోన్ ఫోను మొబైల్ దూరవాణి ಫೋನ್ ಮೊಬೈಲ್ ದೂರವಾಣಿ ഫോൺ ഫോണ്‍ "
    "മൊബൈൽ ફોન મોબાઇલ મોબાઈલ ટેલિફોન ਫ਼ੋਨ ਫ਼ੋਨ ਫੋਨ ਮੋਬਾਈਲ ਮੋਬਾਇਲ ਟੈਲੀਫੋਨ ଫୋନ ଫୋନ୍ ମୋବାଇଲ මොබයිල් දුරකථන "
    "දුරකතන मोबाईल दूरध्वनी ဖုန်း ទូរស័ព្ទ ទូរសព្ទ ໂທ ໂທລະສັບ ເບີໂທ ມືຖື հեռ հեռախոս բջջային ስልክ ስልክ፡ ሞባይል утас тэлефон "
    "тэл telèfon mòbil móbil telefonoa mugikorra ffôn telepono selpon taleefan telefòn ټیلیفون تېلېفون "
    "☎ ☎️ 📞 📱 📲"
)
_PHONE = int(keys("phone")[0])
# They are part of a run of letters, because their languages write no spaces.
_PARTS = keys(
    "电话 手机 電話 手機 携帯 传真 傳真 拨打 撥打 热线 熱線 致电 致電 专线 專線 联系 連絡 聯絡 同号 同號 "
    "전화 휴대 팩스 핸드 연락 직통 문의 상담 센터 대표"
)
_PRICED = keys("售价 价格 售價 價格 価格 가격")
# They mean other things too.
_VAGUE = keys("call calls caller called calling dial dialed dialing")
# They count only as a label, directly before.
_PLACES = keys(
    "cell contact contacto contato recapito kontakt portable pager fixe fisso numer home work desk office "
    "büro direct"
)
# They count only with "at" or "me" in between.
_VERBS = keys(
    "text texted texting message messages reach ring ringe ringa rang signal answer answering ruf schreib "
    "erreichen erreichbar kontaktieren kontakta kontakte kontaktujte contact contactarnos contactar "
    "contáctenos contáctanos contáctame contacte contactez contattarci contattateci contattare joindre "
    "joignable bereiken bereikbaar app nå når nås marque marcar escríbeme escribe scrivimi écrivez "
    "pokličite nazovite pozovite zovite позовите обадете пишите наберите επικοινωνήστε sunați sunaţi "
    "contactați hubungi"
)
# They count only with a colon directly behind.
_ABBREVIATED = keys("hp wa zap")
_JOINING = keys(
    "number numbers num no nr nos nummer número numéro numero is or and on at my our his her their your "
    "the me us him them to a now toll free direct dial line home work office mobile cell main private "
    "business day evening int intl local new old please und oder et ou y o e bei unter au al nº n° № b h w "
    "m c f p номер по av de der die das la le el voice fax via für pour para was were ist lautet est es é "
    "è il je jest este er är yra ir είναι है هو هي это out mich mir uns sie bitte mig mej meg oss os ons "
    "mi ci nás nám mnie mě mne мне нас нам ни auf naar op på pe na en sur do pod čísle čísla číslo на στο "
    "στον μαζί μου μας di saya kami ialah adalah através dem den nummeret numret meu meus mea minha nosso "
    "mio mia nostro mijn onze mein meine mis nuestro mon notre mój moja moje nasz můj môj naše moj naš мой "
    "моя мій наш mitt mit min vårt vores mano mans minu ми שלי मेरा मेरी আমার میرا numărul númerið numurs "
    "numeris numer numeru numara αριθμός номеру номера номером номерът broj broja številka नंबर নম্বর نمبر "
    "رقم המספר מספר nomor nombor til till med"
)
_POINTING = keys(
    "at me us him them on now to au unter bei al по an auf naar op på pe na la el en sur pod на στο στον "
    "di via čísle"
)
# "My number is 12345678": what is owned is a telephone number.
_OWNERS = keys(
    "my our his her their your mein meine meiner unser unsere mon notre votre mi nuestro nuestra meu nosso "
    "mio nostro mijn ons onze mój moje nasz můj môj naše moj naš мой наш мій мои mitt mit min vårt vores "
    "nostru mano mans minu μου μας ми שלי שלנו मेरा मेरी हमारा আমার میرا saya kami"
)
_OWNED = keys(
    "number numbers num nummer nummeret numret número numero numéro numer numeru číslo broj številka nomor "
    "nombor numărul númerið numurs numeris αριθμός номер номерът המספר नंबर নম্বর نمبر رقم"
)
_OTHERS = keys(
    "order orders invoice invoices bestellung ticket tickets case part parts model item items sku id ids "
    "ref reference page pages pp vol volume issue section chapter patent serial version build release isbn "
    "issn doi pmid pmcid ein vat tin iban account acct code codes zip plz room job po rfc cve function "
    "line lines error bug report figure table article record records batch lot copy seed port pid size "
    "user userid arxiv oclc orcid gnd duns nsn pn sn catalog catalogue barcode ean upc asin imei vin "
    "license licence policy tracking shipment customer product bytes revision commit n cost costs price "
    "priced weighs kostet kostete kost kostar kostade kosztuje coûte coûtait cuesta costaba custa tutuyor "
    "стоит стоил стоила цена preis precio preço prezzo prix pris cena stojí"
)
# Those whose numbers have the layouts of telephone numbers.
_PRINTED = keys(
    "order orders invoice invoices part parts model sku ref page pages pp vol volume patent serial isbn "
    "issn doi duns po pn sn catalog catalogue barcode ean upc"
)
_NUMBERING = keys("no nr num number numbers nos nummer número numero is was")
_AFTER = keys(
    "or and for to if now today at before after between ext extension x any anytime please asap und oder "
    "ou et y e o de when while until till from during quoting ask"
)


@borrowing
def _holds_part(data: np.ndarray, start: int, end: int, parts: np.ndarray) -> bool:
    """Whether two characters of `data[start:end]`, of three bytes each, are one of `parts`."""
    for i in range(start, end - 5):  # noqa: SIM110 - any() over a generator does not compile
        if data[i] >= 0xE3 and is_among(parts, key(data, i, i + 6)):
            return True
    return False


@borrowing
def _is_named(data: np.ndarray, start: int, end: int, word: int) -> bool:
    """Whether `data[start:end]`, whose key is `word`, is a word for a telephone, or ends in "phone"."""
    if is_among(_WORDS, word):
        return True
    if data[start] >= 0xE3:
        return _holds_part(data, start, end, _PARTS) and not _holds_part(data, start, end, _PRICED)
    return end - start > 6 and key(data, end - 5, end) == _PHONE


@borrowing
def _labels(data: np.ndarray, start: int, end: int) -> bool:
    """Whether `data[start:end]` is a word for a telephone or for where one is."""
    word = key(data, start, end)
    return _is_named(data, start, end, word) or is_among(_PLACES, word)


@borrowing
def named_by(data: np.ndarray, p: int) -> bool:
    """Whether a word for a telephone touches `p`: "Tel(408) 555-1500"."""
    start = char.run_start(data, p, p - TOUCHING, char.LETTERS)
    return start < p and _labels(data, start, p)


@borrowing
def _tag_start(data: np.ndarray, i: int) -> int:
    """Where the tag of HTML that ends at `i` begins; `i` if there is none."""
    start = char.run_start(data, i - 1, i - _TAG_REACH, _IN_TAG)
    return start - 1 if start > 0 and data[start - 1] == byte.LESS else i


@borrowing
def _is_in_path(data: np.ndarray, i: int) -> bool:
    """Whether the word at `i` belongs to a name such as "a.phone" or "a/phone". "Tel/Fax" is two labels."""
    if i < 2 or not char.is_letter(data[i - 2]):
        return False
    if data[i - 1] != byte.SLASH:
        return data[i - 1] == byte.DOT
    return not _labels(data, char.run_start(data, i - 1, i - TOUCHING, char.LETTERS), i - 1)


@borrowing
def _reach(data: np.ndarray, p: int) -> int:
    """Where the 40 characters before `p` begin."""
    i, characters = p, 0
    while i > 0 and characters < _REACH:
        i -= 1
        characters += data[i] & 0xC0 != 0x80  # bytes of a letter after its first begin none
    return i


@borrowing
def phone_context(data: np.ndarray, p: int) -> int:
    """How closely a word for a telephone belongs to the number at `p`.

    NAMED: it stands directly before, with nothing but marks and words such as "number" in between.
    ADDRESSED: so does a word that means other things too, with a colon or "me at"; or "my number". NEAR: it
    stands somewhere in the 40 characters before, on this line or the one above. ASIDE: a vague word directly
    before. MENTIONED: one somewhere.
    """
    floor = _reach(data, p)
    i, lines, best = p, 0, NOT_NAMED
    direct, marked, pointed = True, False, False
    owner, owned = False, False
    while i > floor:
        c = data[i - 1]
        if c == byte.GREATER and _tag_start(data, i) < i:
            i = _tag_start(data, i)
            marked = True
            continue
        if char.is_letter(c):
            end, i = i, char.run_start(data, i, floor, char.LETTERS)
            if i == floor and i > 0 and char.is_letter(data[i - 1]):
                break
            word = key(data, i, end)
            in_path = _is_in_path(data, i)
            if not in_path and _is_named(data, i, end, word):
                return NAMED if direct else max(best, NEAR)
            marked = marked or (end - i <= 4 and data[end] == byte.DOT)
            if not in_path and is_among(_VAGUE, word):
                best = max(best, (ADDRESSED if pointed or marked else ASIDE) if direct else MENTIONED)
            elif (
                not in_path and direct and pointed and data[end] != byte.COLON and is_among(_VERBS, word)
            ) or (direct and data[end] == byte.COLON and is_among(_ABBREVIATED, word)):
                best = max(best, ADDRESSED)
            elif not in_path and is_among(_PLACES, word):
                if direct:
                    best = max(best, ADDRESSED if marked or char.is_upper(data[i]) else MENTIONED)
            elif is_among(_OTHERS, word):
                break
            if direct and not in_path:
                owner, owned = owner or is_among(_OWNERS, word), owned or is_among(_OWNED, word)
                if owner and owned:
                    best = max(best, ADDRESSED)
            direct = direct and not in_path and is_among(_JOINING, word)
            pointed = pointed or (is_among(_POINTING, word) and not char.is_upper(data[i]))
            continue
        if c == byte.NEWLINE:
            lines += 1
        if lines > _MOST_LINES or ENDS_SEARCH[c]:
            break
        marked = marked or _POINTS[c]
        direct = direct and not (c == byte.COMMA and data[i] == byte.SPACE)
        i -= 1
    return best


@borrowing
def numbers_other(data: np.ndarray, p: int, is_unbroken: bool) -> bool:
    """Whether the number at `p` is said to be of something else: "ISBN 0306406152", "order no. 03012"."""
    return named_before(data, p, _OTHERS if is_unbroken else _PRINTED, _NUMBERING, _REACH)


@borrowing
def word_follows(data: np.ndarray, end: int, hi: int) -> bool:
    return end + 1 < hi and data[end] == byte.SPACE and char.is_letter(data[end + 1])


@borrowing
def noun_follows(data: np.ndarray, end: int, hi: int) -> bool:
    """Whether the sentence goes on as after a count: "call 1234567 times"."""
    if end + 1 >= hi or data[end] != byte.SPACE or not char.is_lower(data[end + 1]):
        return False
    stop = char.run_end(data, end + 1, min(hi, end + 12), char.LETTERS)
    return not is_among(_AFTER, key(data, end + 1, stop))
