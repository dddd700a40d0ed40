"""The forms of values: what everyone writes, what hides a value."""

import string
from collections.abc import Callable
from random import Random

from tests.pipeline.stages.pii.place_values import (
    card,
    email,
    fill,
    iban,
    in_fours,
    in_groups,
    ipv4,
    ipv6,
    jwt,
    letters,
    ssn,
)

Make = Callable[[Random], str]
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BASE64 = string.ascii_letters + string.digits + "+/"
TOKEN = string.ascii_letters + string.digits + "_-"


def layouts(*every: str) -> list[Make]:
    return [lambda rng, layout=layout: fill(rng, layout) for layout in every]  # type: ignore[misc]


def change(make: Make, *replacements: tuple[str, str]) -> Make:
    def changed(rng: Random) -> str:
        value = make(rng)
        for old, new in replacements:
            value = value.replace(old, new)
        return value

    return changed


def marked(before: str, make: Make, behind: str = "") -> Make:
    """The value between NULs, which the scorer takes for its edges, in words that belong to the form."""
    return lambda rng: f"{before}\0{make(rng)}\0{behind}"


def base62(count: int, prefix: str = "", alphabet: str = string.ascii_letters + string.digits) -> Make:
    return lambda rng: prefix + letters(rng, count, alphabet)


def spaced(separator: str) -> Make:
    return lambda rng: in_groups(card(rng), separator)


def fours(separator: str) -> Make:
    return lambda rng: in_fours(iban(rng), separator)


def ssns(layout: str) -> Make:
    return lambda rng: ssn(rng, layout)


GENERAL: dict[str, list[Make]] = {
    "email": [email],
    "phone": layouts(
        "(*##) *##-####",
        "*##-*##-####",
        "*##.*##.####",
        "1-*##-*##-####",
        "+1*##*######",
        "+44 20 7946 0###",
        "020 7946 0###",
        "+49 30 9018##",
        "030 7311###",
        "01 84 17 61 ##",
        "+33 1 84 17 61 ##",
        "+351 914 9## ###",
        "(11) 9*##3-5###",
        "(*##)*##-####",
        "+1 *## *## ####",
        "*##-*##-#### x123",
        "+4420794######",
        "07911 1#####",
        "0161 496 0###",
        "0171 73113##",
        "+49 171 73113##",
        "0049 30 9018##",
        "06 12 34 ## ##",
        "01.84.17.61.##",
        "(21) *##3-5###",
        "+55 11 9*##3-5###",
        "+81 3-5555-7###",
        "03-5555-7###",
    ),
    "ssn": [ssn],
    "credit_card": [card, spaced(" "), spaced("-")],
    "iban": [iban, fours(" "), lambda rng: iban(rng).lower()],
    "ipv4": [ipv4],
    "ipv6": [ipv6],
    "secret": [
        base62(16, "AKIA", string.ascii_uppercase + "234567"),
        base62(36, "ghp_"),
        base62(35, "AIza"),
        base62(24, "sk_live_"),
        base62(48, "sk-proj-"),
        jwt,
        lambda rng: f"xoxb-{fill(rng, '#' * 11)}-{letters(rng, 24)}",
    ],
}

US = layouts("*##-*##-####")[0]
HOSTILE: dict[str, list[Make]] = {
    "email": [
        marked("mailto:", email),
        marked("user/", email),
        marked("e=", email, "&x=1"),
        change(email, ("@", "%40")),
        change(email, ("_", "\\_")),
    ],
    "phone": [
        change(US, ("-", " - ")),
        change(US, ("-", "- ")),
        change(US, ("-", " -")),
        change(US, ("-", "/ ")),
        *layouts(
            "(*##) *## - ####",
            "*## / *## - ####",
            "*## *## - ####",
            "[*##] *##-####",
            "*##·*##·####",
            "*## \u2013 *## \u2013 ####",
            "(*##)-*##-####",
            "*##--*##--####",
            "1 - *## - *## - ####",
            "*##  *##  ####",
        ),
        marked("Tel", layouts("(*##) *##-####")[0]),
        marked("PH", layouts("(0#)#######")[0]),
        marked("Voice", layouts("(*##) *##-1500")[0]),
        marked("Fax:", US),
        marked("phone", US),
        marked("TEL", layouts("+49 30 9018##")[0]),
        marked("NYC ", US, "v.32bis"),
        marked("", layouts("(*##) *##-####")[0], "w"),
        marked("x ", layouts("(*##) *##-####")[0], "H"),
        marked("", US, "/9563"),
        marked("call ", US, "/3259"),
        marked("", layouts("(*##) *##-3416/3259")[0]),
        marked("call ", layouts("552-8072/5##-6619")[0]),
        marked("phone=", change(US, ("-", "+"))),
        marked("tel=%2B", layouts("49+30+2312####")[0]),
        marked("?a=1&tel=", layouts("%28*##%29+*##-####")[0]),
        marked("", US, " 2023-03-13"),
        marked("", layouts("+351 914 922 1##")[0], " 2023-03-13"),
        marked("", US, " 12:45"),
        marked("Phone: ", layouts("*##-*##\n####")[0]),
        marked("Tel. ", layouts("*##-\n*##-####")[0]),
        layouts("(*##)\n*##-####")[0],
    ],
    "ssn": [
        ssns("{} - {} - {}"),
        ssns("{}- {}- {}"),
        ssns("{} -{} -{}"),
        ssns("{} \u2013 {} \u2013 {}"),
        marked("SSN", ssn),
        marked("SSN ", ssns("{} {} {}")),
        marked("social security number: ", ssns("{}{}{}")),
        marked("SSN:", ssns("{}{}{}")),
        marked("SS# ", ssns("{}{}{}")),
        marked("SSAN ", ssns("{} {} {}")),
        marked("Soc. Sec. No. ", ssns("{}{}{}")),
        marked("ssn=", ssns("{}+{}+{}")),
        marked("SS#: ", ssns("{} {} {}")),
        marked("SSN: ", ssns("{}-{}-\n{}")),
        marked("SSN ", ssns("{}-\n{}-{}")),
        marked("", ssn, "/x"),
        marked("soc sec # ", ssns("{} {} {}")),
        marked("Social Security Number (SSN): ", ssns("{}{}{}")),
        marked("Social Security #", ssns("{}{}{}")),
        marked("SSN(", ssn, ")"),
        marked("my social is ", ssns("{}{}{}")),
        marked("SSN: ", ssns("{}.{}.{}")),
        marked("SSN: ", ssns("{}/{}/{}")),
    ],
    "credit_card": [
        spaced("  "),
        spaced(" - "),
        spaced("."),
        spaced("/"),
        spaced("- "),
        marked("v=", spaced("+"), "&x=1"),
        marked("", spaced(" "), " 0427"),
        marked("", spaced(" "), " 2023-03-13"),
        marked("", spaced(" "), " 12 2027"),
        marked("", spaced(" "), " 123456"),
        marked("", card, ".0"),
        marked("%B", card, "^MEIER/ANN^2712"),
        marked(";", card, "=27121010000"),
        marked("/u/", card, "/edit"),
        marked("a/", card, "/b"),
        lambda rng: _eights(rng),
        marked("Visa", card),
        marked("card", spaced(" ")),
        marked("cc:", card, "exp0427"),
        marked("https://pay.example/cards/", card),
        lambda rng: spaced(" ")(rng).replace(" ", "\n", 1),
        lambda rng: spaced(" ")(rng).replace(" ", " \n", 1),
        marked("", card, " 0427 123"),
        marked("", spaced("-"), " 04/27"),
        marked("", spaced("-"), " 0427"),
    ],
    "iban": [
        fours("  "),
        fours("."),
        fours("-"),
        fours(" - "),
        marked("IBAN", iban),
        marked("IBAN:", fours(" ")),
        marked("iban=", fours("+"), "&x=1"),
        marked("iban=", fours("%20")),
        lambda rng: _split(iban(rng)),
        lambda rng: _fives(iban(rng)),
        marked("", iban, "/x"),
        marked("/iban/", iban, "/check"),
        fours("\n"),
        fours("/"),
        marked("IBAN", fours(" ")),
        marked("IBAN ", iban, " BIC COBADEFF"),
        lambda rng: _split(in_fours(iban(rng))),
        marked("Iban.", iban),
        marked("IBAN#", iban),
    ],
    "ipv4": [
        marked("ip=", ipv4, "&x=1"),
        marked("/ip/", ipv4, "/json"),
        marked("https://ipinfo.io/", ipv4),
        marked("ip4:", ipv4),
        marked("", ipv4, ":443,"),
        marked("root@", ipv4),
        marked("", ipv4, "_2024"),
        marked("access_", ipv4, "_log"),
        marked("IP", ipv4),
        marked("", ipv4, ";"),
        marked("", ipv4, "->10.0.0.1"),
        marked("::ffff:", ipv4),
        marked("\\\\", ipv4, "\\c$"),
        marked("src:", ipv4, " dst:10.0.0.1"),
        marked("", ipv4, "\\n"),
        marked("", ipv4, "."),
        marked("ip-addr:", ipv4),
    ],
    "ipv6": [
        marked("inet6 addr:", ipv6),
        marked("v=spf1 ip6:", ipv6, " -all"),
        marked("client:", ipv6),
        marked("ip=", change(ipv6, (":", "%3A"))),
        marked("ip=", change(ipv6, (":", "%3a")), "&x=1"),
        marked("src:", ipv6),
        marked("[", ipv6, "]:443"),
        marked("", ipv6, "/64"),
        marked("ipv6:", ipv6, "."),
        marked("from:", ipv6, ";"),
        marked("host:[", ipv6, "]"),
        change(ipv6, ("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E"), ("f", "F")),
        marked("", ipv6, "%eth0"),
        marked("/ip/", ipv6, "/json"),
        marked("IPv6:", ipv6),
        marked("[IPv6:", ipv6, "]"),
        marked("", ipv6, ","),
    ],
}


def _eights(rng: Random) -> str:
    while len(number := card(rng)) != 16:
        pass
    return f"{number[:8]} {number[8:]}"


def _split(value: str) -> str:
    return f"{value[:2]} {value[2:4]} {value[4:].strip()}"


def _fives(value: str) -> str:
    return " ".join([value[:4], *(value[i : i + 5] for i in range(4, len(value), 5))])


SECRETS: dict[str, Make] = {
    "Twilio": base62(32, "SK", HEX),
    "Databricks": base62(32, "dapi", HEX),
    "Telegram": lambda rng: f"{fill(rng, '*#########')}:AA{letters(rng, 33, TOKEN)}",
    "Postman": lambda rng: f"PMAK-{letters(rng, 24, HEX)}-{letters(rng, 34, HEX)}",
    "New Relic": base62(27, "NRAK-", UPPER),
    "Atlassian": lambda rng: f"ATATT3xFfGF0{letters(rng, 180, TOKEN)}={letters(rng, 8, HEX.upper())}",
    "Terraform": lambda rng: f"{letters(rng, 14)}.atlasv1.{letters(rng, 67, TOKEN)}",
    "Discord": lambda rng: f"M{letters(rng, 25)}.{letters(rng, 6)}.{letters(rng, 38, TOKEN)}",
    "Sentry": base62(64, "sntryu_", HEX),
    "Replicate": base62(37, "r8_"),
    "Notion": base62(43, "secret_"),
    "Notion 2": base62(46, "ntn_"),
    "Brevo": lambda rng: f"xkeysib-{letters(rng, 64, HEX)}-{letters(rng, 16)}",
    "Mailgun": base62(32, "key-", HEX),
    "Perplexity": base62(48, "pplx-"),
    "Doppler": base62(43, "dp.pt."),
    "Supabase": base62(40, "sbp_", HEX),
    "Facebook": base62(150, "EAA"),
    "age": base62(58, "AGE-SECRET-KEY-1", UPPER),
    "Figma": base62(40, "figd_", TOKEN),
    "PlanetScale": base62(43, "pscale_tkn_", TOKEN),
    "Pulumi": base62(40, "pul-", HEX),
    "RubyGems": base62(48, "rubygems_", HEX),
    "Airtable": lambda rng: f"pat{letters(rng, 14)}.{letters(rng, 64, HEX)}",
    "Tailscale": lambda rng: f"tskey-auth-{letters(rng, 17)}-{letters(rng, 32)}",
    "Netlify": base62(36, "nfp_"),
    "Nvidia": base62(64, "nvapi-", TOKEN),
    "LangSmith": lambda rng: f"lsv2_pt_{letters(rng, 32, HEX)}_{letters(rng, 10, HEX)}",
    "Dynatrace": lambda rng: f"dt0c01.{letters(rng, 24, UPPER)}.{letters(rng, 64, UPPER)}",
    "HubSpot": lambda rng: "pat-na1-" + "-".join(letters(rng, count, HEX) for count in (8, 4, 4, 4, 12)),
    "Bitbucket": base62(32, "ATBB"),
    "Sonar": base62(40, "squ_", HEX),
    "bearer": marked("authorization: bearer ", base62(40)),
    "token": marked("Authorization: token ", base62(40, "", HEX)),
    "X-API-Key": marked("X-API-Key: ", base62(32)),
    "x-api-key": marked("x-api-key: ", base62(40)),
    "session": marked("aws_session_token=", base62(120, "FwoG", BASE64)),
    "K8s": marked("secretAccessKey: ", base62(40, "", BASE64)),
    "ADO": marked("Server=db;User Id=sa;Password=", base62(14, "Xy9!"), ";Encrypt=true"),
    "docker": marked('"auth": "', base62(30, "", BASE64), '=="'),
    "patch": marked("\n-", base62(36, "ghp_")),
    "X-Auth-Token": marked("X-Auth-Token: ", base62(32)),
    "X-Vault-Token": marked("X-Vault-Token: ", base62(26)),
    "PRIVATE-TOKEN": marked("PRIVATE-TOKEN: ", base62(20)),
    "api-key": marked("api-key: ", base62(32, "", HEX)),
    "Proxy": marked("Proxy-Authorization: Basic ", base62(28, "", BASE64)),
    "Bearer": marked("authorization: Bearer ", base62(40)),
    "Pwd": marked("Server=db;Uid=sa;Pwd=", base62(12, "Z7")),
}
