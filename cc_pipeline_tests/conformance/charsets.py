"""Charsets: who says them, and who is believed."""

from __future__ import annotations

from cc_pipeline_tests.conformance.responses import Has, answer, case

_RUSSIAN = "<title>Привет, мир</title><p>Паром отходит в полдень."
_JAPANESE = (
    "<title>国際疾病分類</title><p>この文書は、疾病及び関連保健問題の国際統計分類について説明しています。"
    "コードと名称の一覧は次のとおりです。</p>"
)
_CHINESE = (
    "<TITLE>网站地图</TITLE><meta httpequiv='ContentType' content='text/html; charset=gbk' />"
    "<p>小说，网站地图，最新章节目录。"
)
_RSS = "<?xml version='1.0' encoding='windows-1251'?><rss><channel><item><title>Привет</title></item></channel></rss>"

CASES = (
    case(
        "scrapy/scrapy#5601",
        "a byte order mark against the header",
        answer(b"\xef\xbb\xbf" + _RUSSIAN.encode(), "text/html; charset=cp1251"),
        title="Привет, мир",
        charset="UTF-8",
    ),
    case(
        "scrapy/scrapy#123",
        "a byte order mark is no text",
        answer(b"\xef\xbb\xbf<title>A</title><p>One.", "text/html"),
        text="A One.",
    ),
    case(
        "lexborisov/myhtml#35",
        "a byte order mark before plain text",
        answer(b"\xef\xbb\xbfOne.\nTwo.", "text/plain"),
        main="One.\nTwo.",
    ),
    case(
        "scrapy/w3lib#4",
        "content stands before http-equiv",
        answer(
            b"<meta content='text/html;charset=windows-1251' http-equiv='Content-Type'>" + _RUSSIAN.encode("cp1251"),
            "text/html",
        ),
        title="Привет, мир",
        charset="windows-1251",
    ),
    case(
        "scrapy/w3lib#42",
        "charset behind other attributes",
        answer(b"<meta data-a=b charset='windows-1251'>" + _RUSSIAN.encode("cp1251"), "text/html"),
        title="Привет, мир",
    ),
    case("scrapy/w3lib#155", "http-equiv misspelt", answer(_CHINESE.encode("gbk"), "text/html"), title="网站地图"),
    case(
        "scrapy/scrapy#4933",
        "header and meta differ: the header is believed, as by browsers",
        answer("<meta charset=windows-1252>" + _RUSSIAN, "text/html; charset=utf-8"),
        title="Привет, мир",
    ),
    case(
        "scrapy/scrapy#3135",
        "Shift_JIS that nothing says",
        answer(_JAPANESE.encode("cp932"), "text/html"),
        title="国際疾病分類",
    ),
    case(
        "HTML 13.2.3.2",
        "a meta that says UTF-16 means UTF-8",
        answer("<meta charset=utf-16>" + _RUSSIAN, "text/html"),
        title="Привет, мир",
    ),
    case(
        "HTML 13.2.3.2",
        "a header that says UTF-16 is believed, without a byte order mark too",
        answer((_RUSSIAN * 40).encode("utf-16-le"), "text/html; charset=utf-16"),
        title="Привет, мир",
        charset="UTF-16LE",
    ),
    case(
        "HTML 13.2.3.2",
        "x-user-defined in a meta means windows-1252",
        answer("<meta charset=x-user-defined><title>caf\xe9</title>".encode("latin-1"), "text/html"),
        title="café",
    ),
    case(
        "Encoding 4.2",
        "iso-8859-1 is windows-1252",
        answer(b"<title>\x93Harbour\x94 \x80 5</title>", "text/html; charset=iso-8859-1"),
        title="“Harbour” € 5",
    ),
    case(
        "mitmproxy/mitmproxy#3150",
        "gb2312 is GBK",
        answer("<title>朱镕基</title>".encode("gbk"), "text/html; charset=gb2312"),
        title="朱镕基",
    ),
    case(
        "flairNLP/fundus#446",
        "no charset in the header, one in a meta of HTML5",
        answer(b"<meta charset=iso-8859-15><title>\xa4</title>", "text/html"),
        title="€",
    ),
    case(
        "openzim/warc2zim#301",
        "JSON in a charset of its header",
        answer('{"a": "Größe"}'.encode("latin-1"), "application/json; charset=iso-8859-1"),
        text=Has("Größe"),
    ),
    case(
        "kurtmckee/feedparser#72",
        "an XML declaration's charset",
        answer(_RSS.encode("cp1251"), "application/rss+xml"),
        item_titles=["Привет"],
    ),
)
