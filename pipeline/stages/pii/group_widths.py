"""Layouts of digit groups by name: the digits of each group, read as one number, as in `Number.widths`."""

AMERICAN = 334  # "212-555-0187"
AMERICAN_WITH_1 = 1334  # "1-212-555-0187"
AMERICAN_LOCAL = 34  # "555-0187"
AMERICAN_IN_TWO = 37  # "(212) 5550187"
AMERICAN_LAYOUTS = (AMERICAN, AMERICAN_WITH_1, AMERICAN_LOCAL)

SSN = 324  # "078-05-1120"

YEAR_FIRST = 422  # "2024-05-17"
YEAR_FIRST_AND_HOUR = 4222  # "2024-05-17 12"
YEAR_LAST = 224  # "17.05.2024"
YEAR_LAST_AND_HOUR = 2242  # "17.05.2024 12"
YEAR_LAST_SHORT = (
    114,  # "7.5.2024"
    124,  # "7.12.2024"
    214,  # "17.5.2024"
)
# Two years, or a company of Korea
TWO_FOURS = 44  # "1939-1945"

ISSUE_AND_PAGES = (
    144,  # "(3) 7436-7439"
    244,  # "(15) 7436-7439"
)
THREE_PAIRS = 222  # "10 20 30"
FOUR_PAIRS = 2222  # "10.20.30.40"

RUSSIAN = 13322  # "8-800-555-35-35"

# With a leading 0, right after another number, as a page prints a list of them
PRINTED_IN_LISTS = (
    22222,  # "01 42 68 53 00"
    344,  # "020 7946 0958"
    434,  # "0171 946 0958"
)
# With a leading 0 and hyphens
HYPHENED_IN_NINE = 342  # "020-7946-09"
HYPHENED_IN_TEN = 433  # "0171-946-095"

HYPHENED_OF_THINGS = 323  # "123-45-678"

# Of numbers without a leading 0
USUAL_OF_TWO = (
    34,  # "555 0187"
    43,  # "5550 187"
    36,  # "613 555018"
    37,  # "613 5550187"
    25,  # "61 55501"
    55,  # "61355 50187"
)
USUAL_OF_THREE = (
    333,  # "613 555 018"
    334,  # "613 555 0187"
    344,  # "613 5550 1872"
    322,  # "555 01 87"
    323,  # "555 01 872"
    232,  # "55 501 87"
    223,  # "55 50 187"
    233,  # "61 355 501"
    234,  # "61 355 5018"
    244,  # "61 3555 0187"
    254,  # "61 35550 1872"
    255,  # "61 35550 18722"
)
