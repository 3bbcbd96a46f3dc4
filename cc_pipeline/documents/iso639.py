"""CLD2's language codes as ISO-639-3 (three letters), the form Common Crawl's index uses."""

from __future__ import annotations

_PAIRS = """
aa:aar ab:abk af:afr ak:aka am:amh ar:ara as:asm ay:aym az:aze ba:bak be:bel bg:bul bh:bih bi:bis bn:ben bo:bod
br:bre bs:bos ca:cat co:cos cs:ces cy:cym da:dan de:deu dv:div dz:dzo ee:ewe el:ell en:eng eo:epo es:spa et:est
eu:eus fa:fas fi:fin fj:fij fo:fao fr:fra fy:fry ga:gle gd:gla gl:glg gn:grn gu:guj gv:glv ha:hau hi:hin hr:hrv
ht:hat hu:hun hy:hye ia:ina id:ind ie:ile ig:ibo ik:ipk is:isl it:ita iu:iku iw:heb he:heb ja:jpn jw:jav jv:jav
ka:kat kk:kaz kl:kal km:khm kn:kan ko:kor ks:kas ku:kur ky:kir la:lat lb:ltz lg:lug ln:lin lo:lao lt:lit lv:lav
mg:mlg mi:mri mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt my:mya na:nau ne:nep nl:nld nn:nno no:nor nr:nbl ny:nya
oc:oci om:orm or:ori os:oss pa:pan pl:pol ps:pus pt:por qu:que rm:roh rn:run ro:ron ru:rus rw:kin sa:san sd:snd
sg:sag si:sin sk:slk sl:slv sm:smo sn:sna so:som sq:sqi sr:srp sr-ME:cnr ss:ssw st:sot su:sun sv:swe sw:swa
ta:tam te:tel tg:tgk th:tha ti:tir tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso tt:tat tw:twi ug:uig uk:ukr ur:urd
uz:uzb ve:ven vi:vie vo:vol wo:wol xh:xho yi:yid yo:yor za:zha zh:zho zh-Hant:zho zu:zul
"""

#: Codes CLD2 already gives with three letters.
_SAME = """
ceb chr crs gaa haw hmn kha kri lif loz lua luo mfe new nso pam raj sco syr tlh tum war
"""

#: CLD2 code to ISO-639-3. Script-only guesses (``xx-Latn``) name no language and are absent.
ISO_639_3: dict[str, str] = dict(pair.split(":") for pair in _PAIRS.split()) | {code: code for code in _SAME.split()}
