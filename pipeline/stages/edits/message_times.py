"""How messages begin in the chats that people export: dates and times, and lines that nobody wrote."""

# As phones write them in many languages, some with marks of the direction of writing.
_LEFT_TO_RIGHT = "\u200e"
_DIRECTIONS = f"{_LEFT_TO_RIGHT}|\u200f"
_BETWEEN = f"(?:{_DIRECTIONS})?[./-] ?"
# Of Arabic, Persian, Devanagari, Bengali and Burmese, which phones write in the languages of these scripts.
_OTHER_ZEROS = (0x660, 0x6F0, 0x966, 0x9E6, 0x1040)
_DIGIT = "|".join(["(?:[0-9]", *(chr(zero + digit) for zero in _OTHER_ZEROS for digit in range(10))]) + ")"
_YEAR = "\u202f\u0433"  # behind it in Bulgarian
_NUMBERS = rf"{_DIGIT}{{1,4}}{_BETWEEN}{_DIGIT}{{1,2}}{_BETWEEN}{_DIGIT}{{1,4}}(?:{_YEAR})?\.?"
_DATE = rf"(?:{_NUMBERS}|[0-9]{{2}}-[A-Z][a-z]{{2}}-[0-9]{{2}})"
_CLOCK = rf"{_DIGIT}{{1,2}}(?:[.:]| h ){_DIGIT}{{2}}(?:(?:[.:]| min ){_DIGIT}{{2}})?(?: s)?"
_SPACES = " |\u00a0|\u202f"  # before "PM"
_THEN = r",|،|,? klo|,? um|,? kl\.?| à|,? às|,? a las|,? at"
_HALF = (
    rf"[APap]\.?(?:{_SPACES})?[Mm]\.?|π\.μ\.|μ\.μ\.|ص|م|SA|CH|öö|ös|PG|PTG|[pm]\.d\.|GH|GD|ق\.ظ\.|ب\.ظ\.|د\.ن|پ\.ن|ب\.ن|"
    r"ਪੂ\.ਦੁ\.|ਬਾ\.ਦੁ\.|पूर्वाह्न|अपराह्न|ጥዋት|ከሰዓት|ቅ\.ቀ\.|ድ\.ቀ\."
)
_HALF_BEFORE = "(?:上午|下午|凌晨|早上|中午|晚上|午前|午後|오전|오후|पूर्वाह्न|अपराह्न|[AP]M) ?"
_TIME = rf"(?:{_HALF_BEFORE})?{_CLOCK}(?:(?:{_SPACES})?(?:{_HALF}))?"
_WHEN = rf"{_DATE}(?:{_THEN})? {_TIME}"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_KOREAN_DATE = r"[0-9]{4}(?:년|\.) [0-9]{1,2}(?:월|\.) [0-9]{1,2}(?:일|\.)"
_IN_WORDS = rf"(?:{_KOREAN_DATE}|{_MONTH} [0-9]{{1,2}}, [0-9]{{4}}(?:,| at)) {_TIME}"
_IN_BRACKETS = rf"\[(?:(?:오전|오후) {_CLOCK}|{_CLOCK} [AP]M)\]"
_OF_LINE = rf"{_TIME}\t"
_OF_WEECHAT = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\t"
_END = r"(?:\n|$)"
_STICKER = rf"(?:사진(?: [0-9]+장)?|동영상|이모티콘|Photos?|Video|Emoticons?){_END}"

# A group is what is cut; without one, all of it is: what stands for a picture, and what no person said.
_BEGINNINGS = (
    # WhatsApp, Signal's exports, Discord.
    rf"(?:{_DIRECTIONS})*(?:\[(?:{_DIRECTIONS})*{_WHEN}\]|{_WHEN} -) "
    rf"(?:[^:\n]+: (?:<[^<>\n]+>|{_LEFT_TO_RIGHT}[^\n]*){_END})?",
    # KakaoTalk, on phones and on computers. Days have lines of their own.
    rf"{_IN_WORDS}{_END}",
    rf"{_IN_WORDS}, [^:\n]+ : {_STICKER}",
    rf"({_IN_WORDS}, )[^:\n]+ : ",
    rf"\[[^\]\n]+\] {_IN_BRACKETS} {_STICKER}",
    rf"\[[^\]\n]+\] ({_IN_BRACKETS} )",
    rf"-{{15}} [^\n]*[0-9]{{4}}[^\n]* -{{15}}{_END}",
    # LINE, and Zoom.
    rf"{_OF_LINE}[^\t\n]+\t\[[^\]\n]+\]{_END}",
    rf"({_OF_LINE})[^\t\n]+\t",
    rf"({_CLOCK}\t ?From +)",
    # imessage-exporter.
    rf"{_MONTH} [0-9]{{2}}, [0-9]{{4}} {{1,2}}{_CLOCK} [AP]M(?: \(Read by [^\n]*\))?{_END}",
    # IRC, as WeeChat, as irssi, and as energymech and mIRC write it.
    rf"{_OF_WEECHAT}(?:-->|<--|--)\t[^\n]*{_END}",
    rf"({_OF_WEECHAT})[^\t\n]+\t",
    rf"--- (?:Log opened|Log closed|Day changed) [^\n]*{_END}",
    rf"{_CLOCK} -!- [^\n]*{_END}",
    rf"({_CLOCK} )(?:<[^>\n]+> | \* )",
    rf"\[{_CLOCK}\] \*\*\* [^\n]*{_END}",
    rf"(\[{_CLOCK}\] )(?:<[^>\n]+> |\* )",
)
MESSAGE_TIME = "|".join(f"^{beginning}" for beginning in _BEGINNINGS)
