"""Keys and tokens with their issuer's prefix, or after a name such as "X-API-Key".

Prefixes and lengths are those that the issuers document. docs/personal-data.md lists them.
"""

import numpy as np

from pipeline.stages.compiled import borrowing
from pipeline.stages.pii import byte, char
from pipeline.stages.text import equals

# The characters of a body. An assigned one has an optional "=" or ":" and quotes before it; a named one must
# have them, and a digit and a letter. An owned one has its owner's id and a dot before the prefix.
_PLAIN, _DASHED, _DOTTED, _BASE64, _HEX, _PATH, _MIXED, _OWNED, _ASSIGNED, _NAMED = range(10)
_BODY = np.stack(
    [
        char.ALNUM,
        char.IN_TOKEN,
        char.IN_TOKEN | byte.byte_set(b"."),
        char.IN_BASE64,
        char.HEX | byte.byte_set(b"-_"),
        char.IN_TOKEN | byte.byte_set(b"/@"),
        char.IN_TOKEN | char.IN_BASE64,
        char.IN_TOKEN,
        char.IN_BASE64,
        char.IN_TOKEN | char.IN_BASE64 | byte.byte_set(b".~"),
    ]
)
_OF_NAMES = byte.byte_set(b"=:")

# prefixes, shortest and longest body (0: no limit), its characters
_RULES: tuple[tuple[bytes, int, int, int], ...] = (
    (b"AKIA ASIA", 16, 16, _PLAIN),  # AWS
    (b"secret_access_key SECRET_ACCESS_KEY SecretAccessKey secretAccessKey", 40, 40, _ASSIGNED),
    (b"session_token SESSION_TOKEN", 80, 0, _ASSIGNED),
    (b"AccountKey SharedAccessKey", 40, 100, _ASSIGNED),  # Azure
    (b"API-Key Api-Key api-key API-KEY api_key API_KEY apiKey ApiKey", 16, 256, _NAMED),
    (b"Auth-Token auth-token auth_token AUTH_TOKEN AUTH-TOKEN", 16, 1024, _NAMED),
    (b"Access-Token access-token access_token ACCESS_TOKEN", 16, 1024, _NAMED),
    (b"PRIVATE-TOKEN Private-Token private-token private_token JOB-TOKEN", 16, 256, _NAMED),
    (b"Vault-Token vault-token Security-Token security-token Subscription-Key", 16, 1024, _NAMED),
    (b"client_secret CLIENT_SECRET client-secret refresh_token REFRESH_TOKEN", 16, 1024, _NAMED),
    (b"AIza", 35, 35, _DASHED),  # Google
    (b"GOCSPX-", 28, 28, _DASHED),
    (b"ya29.", 30, 0, _DASHED),
    (b"ghp_ gho_ ghu_ ghs_ ghr_", 36, 255, _PLAIN),  # GitHub
    (b"github_pat_", 40, 255, _DASHED),
    (b"glpat- gldt- glrt- glft- glptt- glcbt- glsoat- glagent- gloas-", 20, 0, _DOTTED),  # GitLab
    (b"ATBB", 28, 32, _PLAIN),  # Bitbucket
    (b"xoxb- xoxp- xoxa- xoxr- xoxs- xoxe- xapp-", 20, 0, _DASHED),  # Slack
    (b"xoxe.", 30, 0, _DASHED),
    (b"hooks.slack.com/services/", 30, 0, _BASE64),
    (b"discord.com/api/webhooks/ discordapp.com/api/webhooks/", 60, 0, _PATH),
    (b"webhook.office.com/webhookb2/", 60, 0, _PATH),  # Teams
    (b"sk-ant-", 24, 0, _DASHED),  # Anthropic
    (b"sk-proj- sk-svcacct- sk-admin-", 24, 0, _DASHED),  # OpenAI
    (b"sk-or-v1-", 64, 64, _PLAIN),  # OpenRouter
    (b"sk-lf- pk-lf-", 36, 36, _HEX),  # Langfuse
    (b"sk-", 32, 64, _PLAIN),
    (b"sk_live_ sk_test_ rk_live_ rk_test_", 16, 0, _PLAIN),  # Stripe
    (b"whsec_", 24, 0, _BASE64),
    (b"sk_", 48, 48, _HEX),  # ElevenLabs
    (b"SG.", 66, 66, _DOTTED),  # SendGrid
    (b"SK", 32, 32, _HEX),  # Twilio
    (b"hf_ api_org_", 30, 40, _PLAIN),  # Hugging Face
    (b"vercel_blob_rw_", 30, 80, _DASHED),  # Vercel
    (b"sl.", 120, 0, _DASHED),  # Dropbox
    (b"npm_", 36, 36, _PLAIN),
    (b"pypi-AgE", 50, 0, _DASHED),
    (b"rubygems_", 48, 48, _HEX),
    (b"dop_v1_ doo_v1_ dor_v1_", 64, 64, _HEX),  # DigitalOcean
    (b"shpat_ shpss_ shpca_ shppa_", 32, 32, _HEX),  # Shopify
    (b"gsk_", 40, 60, _PLAIN),  # Groq
    (b"xai-", 60, 100, _PLAIN),
    (b"pplx-", 40, 64, _PLAIN),  # Perplexity
    (b"nvapi-", 60, 80, _DASHED),  # Nvidia
    (b"r8_", 37, 40, _PLAIN),  # Replicate
    (b"fw_", 22, 40, _PLAIN),  # Fireworks
    (b"tvly-", 28, 64, _DASHED),  # Tavily
    (b"pcsk_", 50, 0, _DASHED),  # Pinecone
    (b"lsv2_pt_ lsv2_sk_", 40, 50, _HEX),  # LangSmith
    (b"glsa_", 32, 0, _DASHED),  # Grafana
    (b"glc_", 32, 0, _BASE64),
    (b"dckr_pat_ dckr_oat_", 27, 0, _DASHED),  # Docker
    (b"lin_api_ lin_oauth_", 32, 64, _PLAIN),  # Linear
    (b"sq0atp-", 22, 22, _DASHED),  # Square
    (b"sq0csp-", 43, 43, _DASHED),
    (b"hvs. hvb. hvr.", 24, 0, _DASHED),  # HashiCorp Vault
    (b"PMAK-", 59, 59, _HEX),  # Postman
    (b"NRAK- NRJS- NRAA- NRII- NRIQ- NRRA-", 19, 64, _DASHED),  # New Relic
    (b"sntrys_", 60, 0, _MIXED),  # Sentry
    (b"sntryu_", 64, 64, _HEX),
    (b"secret_", 43, 43, _PLAIN),  # Notion
    (b"ntn_", 40, 60, _PLAIN),
    (b"xkeysib- xsmtpsib-", 80, 82, _DASHED),  # Brevo
    (b"key-", 32, 32, _HEX),  # Mailgun
    (b"re_", 24, 40, _DASHED),  # Resend
    (b"dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", 40, 80, _DOTTED),  # Doppler
    (b"sbp_", 40, 40, _HEX),  # Supabase
    (b"sb_secret_", 20, 0, _DASHED),
    (b"AGE-SECRET-KEY-1", 58, 58, _PLAIN),  # age
    (b"figd_ figo_", 40, 0, _DASHED),  # Figma
    (b"pscale_tkn_ pscale_pw_ pscale_oauth_", 32, 64, _DASHED),  # PlanetScale
    (b"pul-", 40, 40, _HEX),  # Pulumi
    (b"tskey-", 20, 0, _DASHED),  # Tailscale
    (b"nfp_ nfc_ nfo_", 36, 40, _PLAIN),  # Netlify
    (b"dt0c01. dt0s01. dt0s16.", 80, 100, _DOTTED),  # Dynatrace
    (b"pat-na1- pat-na2- pat-eu1-", 36, 36, _HEX),  # HubSpot
    (b"squ_ sqp_ sqa_", 40, 40, _HEX),  # SonarQube
    (b"PMAT-", 26, 26, _PLAIN),
    (b"CFPAT-", 43, 43, _DASHED),  # Contentful
    (b"rdme_", 70, 70, _PLAIN),  # ReadMe
    (b"shippo_live_ shippo_test_", 40, 40, _HEX),
    (b"EZAK EZTK", 54, 54, _PLAIN),  # EasyPost
    (b"HRKU-", 36, 72, _DASHED),  # Heroku
    (b"fo1_ fm1_ fm2_", 40, 0, _BASE64),  # Fly.io
    (b"CCIPAT_ CCIPRJ_", 60, 70, _DASHED),  # CircleCI
    (b"bkua_", 40, 40, _HEX),  # Buildkite
    (b"rzp_live_ rzp_test_", 14, 14, _PLAIN),  # Razorpay
    (b"FLWSECK-", 32, 0, _DASHED),  # Flutterwave
    (b"access-sandbox- access-production- access-development-", 36, 36, _HEX),  # Plaid
    (b"waka_", 36, 36, _HEX),  # WakaTime
    (b"tfp_", 59, 60, _DASHED),  # Typeform
    (b"ops_eyJ", 60, 0, _DASHED),  # 1Password
    (b"sk.eyJ", 60, 0, _DOTTED),  # Mapbox
    (b"pnu_ pnb_", 36, 36, _PLAIN),  # Prefect
    (b"sdk-", 36, 36, _HEX),  # LaunchDarkly
    (b"SWMTKN-1-", 60, 80, _DASHED),  # Docker Swarm
    (b"csk-", 48, 48, _PLAIN),  # Cerebras
    (b"fc-", 32, 32, _HEX),  # Firecrawl
    (b"jina_", 60, 60, _PLAIN),  # Jina
    (b"tgp_v1_", 40, 48, _DASHED),  # Together
    (b"wandb_v1_", 40, 100, _DASHED),  # Weights & Biases
    (b"AQ.Ab8RN6", 30, 0, _DASHED),  # Gemini
    (b"e2b_", 40, 40, _HEX),  # E2B
    (b"phx_", 40, 50, _PLAIN),  # PostHog
    (b"napi_", 48, 80, _PLAIN),  # Neon
    (b"rnd_", 28, 36, _PLAIN),  # Render
    (b"cfk_ cfut_ cfat_", 40, 60, _PLAIN),  # Cloudflare
    (b"vcp_ vci_ vca_ vcr_ vck_", 24, 80, _PLAIN),  # Vercel
    (b"atlasv1.", 60, 70, _OWNED),  # Terraform
)
_OWNER = 14  # characters of the owner's id

# Rare bytes at which a search starts: "J" for a JSON web token, "B" for a private key, "z" for a header, all
# but "J" for the rules too. A prefix is searched for from its last trigger, by that and the byte before it.
TRIGGERS = b"_-.KSzJB"
_SLOT = np.zeros(256, np.int64)
_SLOT[list(TRIGGERS)] = np.arange(len(TRIGGERS)) * 256


def _trigger(prefix: bytes) -> int:
    """The index of the last separator of the prefix, or of its last rare letter."""
    separators = [i for i, c in enumerate(prefix) if c in b"_-."]
    return max(separators or [i for i, c in enumerate(prefix) if c in TRIGGERS and i])


def _place(prefix: bytes) -> int:
    trigger = _trigger(prefix)
    return int(_SLOT[prefix[trigger]]) + prefix[trigger - 1]


_SORTED = sorted(
    ((prefix, limits) for prefixes, *limits in _RULES for prefix in prefixes.split()),
    key=lambda rule: _place(rule[0]),
)
_PREFIXES = [prefix for prefix, _ in _SORTED]
_TRIGGER = np.array([_trigger(prefix) for prefix in _PREFIXES], dtype=np.int64)
_FIRST_RULE = np.searchsorted([_place(prefix) for prefix in _PREFIXES], np.arange(len(TRIGGERS) * 256 + 1))
_PREFIX, _PREFIX_START = byte.joined(_PREFIXES)
_LIMITS = np.array([limits for _, limits in _SORTED], dtype=np.int64)


@borrowing
def is_joined(data: np.ndarray, start: int) -> bool:
    """Whether a word, or a word and a hyphen, goes on at `start`. The "-" of a removed line is no hyphen."""
    if char.word_before(data, start):
        return True
    return (
        start > 1
        and data[start - 1] == byte.HYPHEN
        and not char.after_value(data, start)
        and char.is_alnum(data[start - 2])
    )


@borrowing
def is_random(data: np.ndarray, start: int, end: int) -> bool:
    """Whether `start:end` has a digit, a letter, and no words between separators, as templates have."""
    digits, letters, run, words = 0, 0, 0, 0
    for i in range(start, end):
        digits += char.is_digit(data[i])
        lower = char.is_lower(data[i])
        letters += lower or char.is_upper(data[i])
        run = run + 1 if lower else 0
        words += run == 6
    return digits > 0 and letters > 0 and words < 2


@borrowing
def _value_start(data: np.ndarray, body: int, hi: int) -> tuple[int, bool]:
    """(where the value begins, whether "=" or ":" stands before it) after a name that ends at `body`."""
    last = min(hi, body + 8)
    assigned = False
    while body < last and char.ASSIGNS[data[body]]:
        assigned = assigned or _OF_NAMES[data[body]]
        body += 1
    return body, assigned


@borrowing
def _owned_start(data: np.ndarray, start: int) -> int:
    """Where the token begins whose prefix is at `start`: at its owner's id, if it has one."""
    owner = start - 1 - _OWNER
    if owner < 0 or data[start - 1] != byte.DOT or char.word_before(data, owner):
        return start
    return owner if char.run_end(data, owner, start - 1, char.ALNUM) == start - 1 else start


@borrowing
def token_at(data: np.ndarray, i: int, hi: int) -> tuple[int, int]:
    """(start, end) of the token whose prefix has its trigger at `i`, or (0, 0)."""
    if i == 0:
        return 0, 0
    place = _SLOT[data[i]] + data[i - 1]
    for rule in range(_FIRST_RULE[place], _FIRST_RULE[place + 1]):
        start = i - _TRIGGER[rule]
        prefix = _PREFIX[_PREFIX_START[rule] : _PREFIX_START[rule + 1]]
        if not equals(data, start, hi - 1, prefix):
            continue
        least, most, alphabet = _LIMITS[rule]
        body = start + len(prefix)
        if alphabet >= _ASSIGNED:
            body, assigned = _value_start(data, body, hi)
            if alphabet == _NAMED and not assigned:
                continue
            start = body
        elif is_joined(data, start):
            continue
        end = body
        limit = hi if most == 0 else min(hi, body + most + 1)
        while end < limit and _BODY[alphabet, data[end]]:
            end += 1
        while end > body and (
            data[end - 1] == byte.DOT or (data[end - 1] == byte.UNDERSCORE and end - body > most > 0)
        ):
            end -= 1
        if alphabet == _NAMED and not is_random(data, body, end):
            continue
        if end - body >= least and (most == 0 or end - body <= most) and not char.word_at(data, end, hi):
            return _owned_start(data, start) if alphabet == _OWNED else start, end
    return 0, 0


# Prefixes without a rare byte: the first digit after them starts the search. Shortest and longest body, and a
# byte that parts it in two (0: none), which Airtable's has and Atlassian's may have.
_WORDS: tuple[tuple[bytes, int, int, int], ...] = (
    (b"EAA", 60, 320, 0),  # Facebook
    (b"ATATT3 ATCTT3", 60, 320, byte.EQUALS),  # Atlassian
    (b"AKCp", 50, 100, 0),  # JFrog
    (b"LTAI", 12, 20, 0),  # Alibaba
    (b"dapi", 32, 34, 0),  # Databricks
    (b"pat", 79, 79, byte.DOT),  # Airtable
    (b"cio", 32, 32, 0),  # crates.io
    (b"APA91b", 134, 180, 0),  # Firebase
    (b"ABSK", 100, 160, byte.EQUALS),  # AWS Bedrock
)
_WORD_REACH = 24
_WORD_PREFIXES = [prefix for prefixes, *_ in _WORDS for prefix in prefixes.split()]
_WORD, _WORD_START = byte.joined(_WORD_PREFIXES)
_WORD_LIMITS = np.array([limits for prefixes, *limits in _WORDS for _ in prefixes.split()], dtype=np.int64)
_BEGINS_WORD = byte.byte_set(bytes(prefix[0] for prefix in _WORD_PREFIXES))


@borrowing
def _azure_at(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(start, end) of a secret of an application of Azure, with "Q~" behind the digit at `p`, or (0, 0)."""
    end = p + 3
    while end < hi and end - p < 40 and (_BODY[_DOTTED, data[end]] or data[end] == byte.TILDE):
        end += 1
    whole = 34 <= end - p <= 38 and not char.word_before(data, p - 3)
    return (p - 3, end) if whole and _BODY[_DOTTED, data[p - 1]] else (0, 0)


@borrowing
def token_around(data: np.ndarray, p: int, hi: int) -> tuple[int, int]:
    """(start, end) of the token whose first digit, after letters, is at `p`, or (0, 0)."""
    if p >= 3 and p + 2 < hi and data[p + 1] == byte.UPPER_Q and data[p + 2] == byte.TILDE:
        return _azure_at(data, p, hi)
    start = char.run_start(data, p, p - _WORD_REACH, char.ALNUM)
    if not _BEGINS_WORD[data[start]] or is_joined(data, start):
        return 0, 0
    for rule in range(len(_WORD_LIMITS)):
        prefix = _WORD[_WORD_START[rule] : _WORD_START[rule + 1]]
        if not equals(data, start, hi, prefix):
            continue
        least, most, parting = _WORD_LIMITS[rule]
        body = start + len(prefix)
        end, limit, parts = body, min(hi, body + most + 1), 1
        while end < limit and (char.IN_TOKEN[data[end]] or (data[end] == parting and parts == 1)):
            parts += data[end] == parting
            end += 1
        whole = parts == 2 or parting != byte.DOT
        if least <= end - body <= most and whole and not char.word_at(data, end, hi):
            return start, end
    return 0, 0
