"""Where values and look-alikes stand: one line a family, `{}` for the value."""

GENERAL = r"""
Please write to {} before Friday.
She gave {} as her details,and left.
Bitte melden Sie sich unter {} bei Frau Krüger.
Contactez-nous : {} (service client)
Póngase en contacto con {} mañana.
Scrivere a {} oppure passare in sede.
Neem contact op met {} a.u.b.
Proszę o kontakt: {}, dziękuję
Kontakta {} snarast.
Lütfen {} ile iletişime geçin.
Свяжитесь: {} сегодня.
请联系{}谢谢
ご連絡は{}まで
연락처: {} 입니다
تواصل معنا {} اليوم
צרו קשר {} היום
({})
[{}]
<{}>
"{}"
'{}'
„{}“
«{}»
“{}”
|{}|
**{}**
_{}_
`{}`
* {}
- [ ] ask {} again
> {}
>> wrote {} and
# {}
| Ann | {} | open |
<td>{}</td>
<p>Contact: {}<br>
<span class="v">{}</span>
<value><![CDATA[{}]]></value>
<person name="Ann" detail="{}"/>
<!-- {} -->
{{"detail": "{}"}}
{{"a": [1, "{}", null]}}
{{\"detail\": \"{}\", \"n\": 1}}
{{\\\"detail\\\": \\\"{}\\\"}}
{{'detail': '{}', 'ok': True}}
detail: {}
detail: "{}"
  - {}
detail = "{}"
detail={}
DETAIL='{}'
export DETAIL="{}"
detail;{};open
Ann,{},3
"Ann","{}","x"
7,"{}",2024-02-11
Ann	{}	Berlin
4	{}	12.5
INSERT INTO people (id, v) VALUES (7, '{}');
SELECT * FROM t WHERE v = '{}' LIMIT 1;
UPDATE t SET v='{}', n=3 WHERE id=7
COPY t (id, v) FROM stdin;\n7	{}	t\n\.
2024-03-19 12:01:15,331 INFO [main] detail={} ok
2024-03-19T12:01:15Z WARN handler: {} rejected
Mar 19 12:01:15 web-1 app[1234]: {} seen
[19/Mar/2024:12:01:15 +0100] {} 200
level=info msg="saw {}" n=3
E0319 12:01:15.331 9 main.go:12] {} failed
NOTE:{}
X-DETAIL:{}
N:Meier;Ann;;;\nX-V:{}\nEND:VCARD
DESCRIPTION:{}\nEND:VEVENT
dn: uid=7,ou=people\ndescription: {}
\\item {} \\\\
\\texttt{{{}}}
\\href{{x}}{{{}}}
+  detail: {}
-  detail: {}
+{}
@@ -1,3 +1,3 @@\n-old {}\n+new
commit 1f3e\nAuthor: Ann\n\n    use {} for tests
PID|1||7^^^A||MEIER^ANN||19700101|F|||{}|
OBX|3|ST|x||{}||||
<ann> {} thanks
[12:01] ann: {}
12:01 - Ann: {}
ann@web:~$ echo {}
print("{}")
x = '{}'  # old
// {}
/* {} */
return {{ detail: `{}` }};
call(7, "{}", true);
{}\n\nThanks,\nAnn
Hi,\n{}\nBye
From: {}
Re: {}
Subject: {} - please file
https://x.example/find?q={}
https://x.example/find?a=1&v={}&b=2
GET /find?v={}&n=1 HTTP/1.1
Cookie: v={}; theme=dark
q=a%20b&v={}
data-v="{}"
--detail {}
--detail={}
--detail "{}" --n 3
Q: Who is it? A: {}.
1) {}
a) {}
Note {}; more below.
Is it {}?
It was {}!
...{}...
— {} —
• {}
{}/x
mail or call {} today.
My number is {}!
* {} (home)
{}
94105,{},x
94105,"{}",x
3,{},5
97.98,{},4
Ann 34	{}
350 Fifth Avenue, New York, NY 10118 {}
Phone: NY 10118 {}
10115 Berlin, {}
on 3/14/2019 {} wrote
2024-03-01 {} was seen
12:01:15 {} joined
n/a; {}
✓ {}
"""
GENERAL += "名前\uff1a{}、以上\n"

LABEL_LINES = """
{word} {}
{word}: {}
{word}. {}
{word}.: {}
{word} : {}
{word}  {}
{word}:{}
{word}={}
{word}	{}
{word}:\t{}
({word} {})
({word}: {})
[{word}: {}]
<b>{word}:</b> {}
<td>{word}</td><td>{}</td>
"{word}": "{}"
'{word}': '{}',
{word},{}
{word};{}
| {word} | {} |
* {word}: {}
- **{word}**: {}
Ann Meier, {word} {}
Ann Meier, 10115 Berlin, {word}: {}
Ann Meier | {word}: {} | Berlin
Contact Ann at {word} {}.
{word}: {}, Ann
{word}: {} (Ann)
{word}: {}; ann
{word} {}\\nThanks
mail a@corp.com, {word} {}
mail a@corp.com\n{word}: {}
{word}: {}\n{word}: {}
{word} {} or {}
{word}: {}, {}
{word}: {} / {}
"""

ALONE = r"""
{}
({})
see {} for it
as in {}, which
"{}"
'{}'
<td>{}</td>
v = {}
v={}
v: {}
{{"v": "{}"}}
x,{},y
a	{}	b
| {} |
- {}
* {}
we used {} here.
is {}.
[{}]
`{}`
from {} to it
f({})
{} was shown
> {}
"""

BESIDE = """
Call function {} once
we call {} from here
it called {} again
the phone model {} is out
on the phone, {} came up
a phone with {} in it
a call returned {} and ended
the message {} was dropped
message {} of the queue
answer: {}
the answer is {}
they reach {} people
see the text, {}
text {} is long
office copy {}
the office at {} moved
cell {} is empty
in cell {} of the table
the signal {} fired
a ring of {} atoms
fax order {}
contact form {}
mobile version {}
desk {} is free
card number {} of the deck
a card game, {} played
pay {} later
charge {} was tried
the server {} came
address {} in memory
the host of {} came
IP core {} and
security update {}
social media post {}
social security reform, {}
credit {} was given
the bill {} passed
token {} was read
key {} was pressed
secret {} of the trade
"""
