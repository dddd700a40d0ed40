"""Families of places written after the matchers, to judge them. What they showed first was mended once."""

from tests.pipeline.stages.pii import place_lookalikes
from tests.pipeline.stages.pii.place_forms import (
    HEX,
    TOKEN,
    UPPER,
    Make,
    base62,
    change,
    fours,
    layouts,
    marked,
    spaced,
    ssns,
)
from tests.pipeline.stages.pii.place_values import card, email, fill, iban, ipv4, ipv6, letters, ssn

GENERAL = r"""
Kindly reply via {} as soon as you can
Erreichbar unter {}.
Hola, mi dato es {}; gracias
Můj kontakt je {}, děkuji.
Υπάρχει και το {} εδώ.
ติดต่อ {} ได้
{{{{ {} }}}}
~{}~
<li>{}</li>
<a href="#">{}</a>
<input value='{}'>
value: |\n  {}\n
[section]\nvalue = {}
[{{"x": "{}"}}, {{"x": 2}}]
db.set('{}', 1)
'x','{}',''
{}\t1\t2
1;2;{};
EXECUTE p('{}');
VALUES ('{}'), (NULL)
Nov 26 15:01:02 db-2 sshd[77]: seen {} here
time="2024-03-19T12:01:15Z" value="{}"
diff --git a/x b/x\n+value: {}\n
--- \n- {}\n
BEGIN:VCARD\nFN:Ann\nNOTE:{}\n
OBR|1|||{}^x
\\section{{{}}} text
& {} & 3 \\\\
ann> {}
*ann*: {}
2) {}, ok
? {}
= {}
a,b\n1,{}\n
\u2192 {}
x:{}
POST /v1?value={} HTTP/2
https://y.example/a?to={}#top
value%3D1&value={}
""".replace("\\u2192", "\u2192")

US = layouts("*##-*##-####")[0]
HOSTILE: dict[str, list[Make]] = {
    "email": [marked("<", email, ">,<x"), marked("cc:", email), marked("user=", email, ";")],
    "phone": [
        change(US, ("-", " -  ")),
        change(US, ("-", " \u2013 ")),
        change(US, ("-", " -")),
        *layouts(
            "1 (*##) *## - ####",
            "(*##) - *## - ####",
            "*##.*## - ####",
            "+1 *## - *## - ####",
            "+44 20 / 7946 0###",
            "*## \u2013 *##-####",
            "*##•*##•####",
        ),
        marked("Phone", layouts("*## *## ####")[0]),
        marked("Fax(", US, ")"),
        marked("Cell", layouts("(*##)*##-####")[0]),
        marked("tel.", layouts("(0##) ######")[0]),
        marked("", US, "h"),
        marked("", US, "Cell"),
        marked("Ph. ", layouts("*##-4###/5###")[0]),
        marked("", US, "/42"),
        marked("fax=", layouts("%2B1+*##+*##+####")[0], "&b=2"),
        marked("", layouts("+49 30 9018##")[0], " 12.03.2024"),
        marked("", US, " 08:15:00"),
        marked("Fax: ", layouts("(*##)\n  *##-####")[0]),
        marked("Call me: ", layouts("*##-\n> *##-####")[0]),
    ],
    "ssn": [
        ssns("{} -{}- {}"),
        marked("SSN#", ssn),
        marked("SS No. ", ssns("{} {} {}")),
        marked("ssn%3D&ssn=", ssns("{}+{}+{}")),
        marked("SSN is ", ssns("{}{}{}")),
        marked("Social Security: ", ssns("{} {} {}")),
        marked("", ssn, "A"),
        marked("", ssns("{}-{}-\n{}")),
    ],
    "credit_card": [
        spaced(" -"),
        spaced(" / "),
        spaced(" . "),
        marked("card=", spaced("+")),
        marked("", spaced(" "), " 06/27 123"),
        marked("", spaced(" "), " 1127"),
        marked("", spaced(" "), " 2024/03/13"),
        marked("Card", spaced("-")),
        marked("x,", card, ".00,y"),
        marked("/customers/", card, "/orders"),
        marked("VISA ", spaced(" "), "exp 04/27"),
    ],
    "iban": [
        fours(" . "),
        fours(" / "),
        fours("- "),
        marked("iban=", fours("+")),
        marked("IBAN", fours("-")),
        marked("IBAN ", fours(" "), " BIC X"),
        lambda rng: f"{(v := iban(rng))[:2]} {v[2:]}",
        lambda rng: f"{(v := iban(rng))[:4]} {v[4:12]} {v[12:]}",
        marked("(IBAN:", iban, ")"),
    ],
    "ipv4": [
        marked("/whois/", ipv4),
        marked("addr:", ipv4),
        marked("", ipv4, "/32"),
        marked("", ipv4, ":8080/x"),
        marked("log_", ipv4, "_x"),
        marked("client=", ipv4, ","),
        marked("https://", ipv4, "/"),
        marked("ip.src == ", ipv4),
        marked("@", ipv4),
    ],
    "ipv6": [
        marked("addr6:", ipv6),
        marked("remote:", ipv6, " x"),
        marked("x=1&ip=", change(ipv6, (":", "%3A")), "&y"),
        marked("https://[", ipv6, "]/"),
        marked("peer:", ipv6, "/128"),
        marked("ip:", ipv6, ","),
        marked('"addr":"', ipv6, '"'),
    ],
}
SECRETS: dict[str, Make] = {
    "Twilio": marked("auth ", base62(32, "SK", HEX)),
    "GitLab": base62(20, "glpat-", TOKEN),
    "dapi": marked('"', base62(32, "dapi", HEX), '"'),
    "Telegram": lambda rng: f"{fill(rng, '*########')}:AA{letters(rng, 33, TOKEN)}",
    "Groq": base62(52, "gsk_"),
    "Sentry": base62(80, "sntrys_eyJ"),
    "Shopify": base62(32, "shpat_", HEX),
    "Grafana": lambda rng: f"glsa_{letters(rng, 32)}_{letters(rng, 8, HEX)}",
    "New Relic": base62(40, "NRII-", TOKEN),
    "Vault": base62(90, "hvs.", TOKEN),
    "Figma": marked("X-Figma-Token: ", base62(40, "figd_", TOKEN)),
    "token": marked('"authorization": "token ', base62(40, "", HEX), '"'),
    "X-Api-Key": marked("X-Api-Key: ", base62(40)),
    "api_key": marked("api_key=", base62(32, "", HEX)),
    "X-Amz": marked("X-Amz-Security-Token: ", base62(120, "IQoJ")),
    "DD": marked("DD-API-KEY: ", base62(32, "", HEX)),
    "Pwd": marked("Data Source=x;Uid=u;Pwd=", base62(10, "k!"), ";"),
    "auth": marked('"auth":"', base62(40), '"'),
    "AKIA": marked("\n-key: ", base62(16, "AKIA", UPPER)),
    "bearer": marked("authorization: bearer ", base62(64, "", TOKEN)),
    "session": marked('"aws_session_token": "', base62(200, "IQoJ"), '"'),
}
WORDS = {
    "de": "Telefon Tel Durchwahl Fax",
    "fr": "Tél Téléphone Télécopie",
    "es": "Teléfono Tel Móvil",
    "it": "Tel Cellulare",
    "pt": "Telefone Celular",
    "nl": "Telefoon Tel",
    "pl": "Telefon tel Faks",
    "dk": "Tlf Telefon",
    "hu": "Telefon Tel",
    "ro": "Telefon Tel",
    "at": "Tel Telefon Mobil",
    "ch": "Tel Telefon",
    "au": "Phone Ph Mobile",
    "us": "Phone Tel Fax",
    "br": "Telefone WhatsApp Fone",
    "tw": "電話 Tel",
    "id": "Telp Telepon",
    "ir": "تلفن Tel",
    "gb": "Tel Phone",
    "be": "Tel GSM",
}
NATIONAL = {
    "de": [
        "0221 / 4567-##",
        "0221 - 45 67 8#",
        "(0221) 4567-##",
        "0221/45 67 8#",
        "+49 221 / 45678##",
        "(02 21) 45 67 ##",
        "0221. 4567##",
    ],
    "fr": ["04 - 72 00 ## ##", "04/72/00/##/##", "(0)4 72 00 ## ##"],
    "es": ["932 00 ## ##", "93 - 200 ## ##", "+34 93 / 200 ####"],
    "it": ["011/56####", "011 - 56####", "0039 011 56####"],
    "pt": ["22 / 600 ## ##", "351 22 600 ## ##"],
    "nl": ["030 - 25# ## ##", "0031 30 25# ####"],
    "pl": ["(12) 42# ## ##", "12 / 42#-##-##", "0 12 42# ## ##"],
    "dk": ["33 12 ## ##", "3312####", "45 33 12 ## ##"],
    "hu": ["06 1 234 5###", "(06-1) 234-5###", "1/234-5###", "36 1 234 5###"],
    "ro": ["021 312 ## ##", "021/312.##.##", "0721 123 ###"],
    "at": ["01 / 512 34 ##", "0664 / 123 45 ##", "(01) 512 34 ##-0", "43 1 512 34 ##"],
    "ch": ["044 - 668 18 ##", "044/668 18 ##", "0041 44 668 18 ##"],
    "au": ["(02) 9374 4###", "61 2 9374 4###", "02 - 9374 4###"],
    "us": ["*##/*##-####", "*## - ####", "1-*## *##-####", "(*##)/*##-####"],
    "br": ["11 3#23-5###", "55 (11) 3#23-5###", "(011) 3#23-5###"],
    "tw": ["(02) 2720-8###", "02-2720 8###", "886-2-2720-8###"],
    "id": ["(021) 345 6###", "021 - 3456###", "0812-3456-7###"],
    "ir": ["021-8888 ####", "0912 345 67##", "98 21 8888 ####"],
    "gb": ["020 / 7946 0###", "(020) 7946 - 0###", "01632-960 ###"],
    "be": ["02 / 512 34 ##", "0475/12 34 ##", "02-512 34 ##", "(32) 2 512 34 ##"],
}
LOOKALIKES: dict[str, list[Make]] = {
    "order numbers": place_lookalikes.layouts(
        "ordernr. 4500####", "RMA 7#####", "bestelling 30######", "no. ########", "#########"
    ),
    "part numbers": place_lookalikes.layouts(
        "^##-####-###",
        "ref ###-###-##",
        "##-####-##",
        "part no ##-###-###",
        "####-###-####",
        "drawing ###-##-##",
    ),
    "ids": place_lookalikes.layouts(
        "DUNS ##-###-####",
        "EC 2##-###-#",
        "CAS ####-##-#",
        "ISRC US-^^1-##-#####",
        "NCT0#######",
        "rs########",
        "chr1:########-########",
        "GSE######",
    ),
    "math": place_lookalikes.layouts(
        "#.######## \u00d7 ##",
        "###,### / ####",
        "[###, ##, ####]",
        "####*###-###",
        "n=##########",
        "## ± ## (###-####)",
    ),
    "citations": place_lookalikes.layouts(
        "*9:1*-2* (199#)",
        "12(*): *89-*97, 200#",
        "PLoS ONE 8(#): e#####",
        "10.1103/PhysRevB.54.1####",
        "doi.org/10.1016/0021-9991(91)90###-#",
        "pp 10*-11* 2003",
    ),
    "nine digits": place_lookalikes.layouts(
        "9*#-##-####", "routing #########", "###-##-###", "zip+4 #####-####", "*##/###/###"
    ),
    "versions": place_lookalikes.layouts(
        "FirmwareVersion = 12.14.16.1##",
        "build 10.12.14.1##",
        "kernel 11.15.12.1##",
        "ruby-12.13.14.#5",
        "ver. 12.33.41.22",
        "foo<=12.13.14.#0",
    ),
    "at signs": place_lookalikes.layouts(
        "user@12.zip", "x@2.0.tar.gz", "cron@daily.timer", "eslint@8.1#.0", "@scope/pkg@1.2.3", "me@localhost"
    ),
    "card seeds": place_lookalikes.layouts(
        "################", "2222 3333 4444 55## 6666", "4000#########.###"
    ),
    "addresses": place_lookalikes.layouts(
        "10.1##.2.3", "239.1.2.#", "198.51.100.##", "fd00::##", "ff05::##", "12:34:56:78", "0.0.0.#"
    ),
    "secrets": place_lookalikes.layouts(
        "sk-short",
        "key-value-pairs-and-more",
        "api_key=YOUR_API_KEY_GOES_HERE",
        "access_token: null",
        "authorization: bearer token",
        "Password=changeme;",
        "pat-na1-short",
        "token_type_identifier",
        "dapi_client_library",
        "SK-1234567",
    ),
    "other": place_lookalikes.layouts(
        "199# - 200#",
        "## - ## - ##",
        "12.12.2012 / 13.13",
        "lat 48.8###### lon 2.3######",
        "## ## ## ## 0a",
        "20240319########",
        "#####.######",
        "1,23#,45#",
    ),
}
ALONE = 'we saw {} again\n<b>{}</b>\n# {}\nx = [{}]\n{}; next\n"a": "{}"'
BESIDE = """
the call to {} failed
phone case {} sold
a text of {} words
tel aviv, {}
mobile app {} shipped
to reach {} of them
office hours, {}
answer {} was right
your message {} came
a fax of {} pages
ring buffer {} filled
card reader {} broke
server room {} is shut
social club {} met
secret number {}
cell division, {}
"""
