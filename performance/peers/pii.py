"""PII found by peers, as their users call them: spans of a text, under our names of kinds."""

from collections.abc import Callable

Span = tuple[str, int, int]  # kind, start, end
Find = Callable[[str], set[Span]]


def presidio(least_score: float) -> Find:
    """Presidio's predefined pattern recognizers for the six kinds, without an NLP engine; what scores below
    `least_score` is left out.
    """
    import tldextract
    from presidio_analyzer import EntityRecognizer, predefined_recognizers

    # the list in its package: nothing is downloaded
    tldextract.extract = tldextract.TLDExtract(suffix_list_urls=())
    kinds = {
        "EmailRecognizer": "email",
        "PhoneRecognizer": "phone",
        "UsSsnRecognizer": "ssn",
        "IpRecognizer": "ip",
        "CreditCardRecognizer": "credit_card",
        "IbanRecognizer": "iban",
    }
    recognizers = [(getattr(predefined_recognizers, name)(), kind) for name, kind in kinds.items()]

    def find(text: str) -> set[Span]:
        found = set()
        for recognizer, kind in recognizers:
            results = recognizer.analyze(text, recognizer.supported_entities, None)
            for result in EntityRecognizer.remove_duplicates(results):
                if result.score >= least_score:
                    found.add((kind, result.start, result.end))
        return found

    return find


def datatrove() -> Find:
    """datatrove's PIIFormatter: what its two patterns match and it would replace."""
    from datatrove.pipeline.formatters import PIIFormatter

    formatter = PIIFormatter()
    replacers = (("email", formatter.emails_replacer), ("ip", formatter.ip_replacer))

    def find(text: str) -> set[Span]:
        return {
            (kind, *match.span())
            for kind, replacer in replacers
            for match in replacer.regex.finditer(text)
            if replacer.validator is None or replacer.validator(match.group(0))
        }

    return find
