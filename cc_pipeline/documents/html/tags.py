"""The tags of HTML: what a browser shows of each, and its role in the walk over a page. And the words in class names
that hint at a part's purpose."""

from __future__ import annotations

from array import array

#: Tags by number; 0 is any other. The numbers are features of the model: new tags come last.
TAGS: tuple[str, ...] = tuple(
    """? html body main article section nav aside header footer div p h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table caption
    colgroup col thead tbody tfoot tr td th pre blockquote figure figcaption address hgroup details summary dialog form
    fieldset legend label button input a b strong i em cite q dfn abbr code samp kbd var mark small s del ins u sub sup
    span time data bdi bdo ruby rb rt rtc rp br wbr hr img picture source map area iframe video audio track object embed
    param canvas svg math annotation annotation-xml script style template noscript title textarea select option optgroup
    datalist output progress meter slot font center big tt strike nobr acronym menu search dir listing xmp plaintext
    noframes noembed frameset frame head base link meta marquee basefont use image foreignobject desc metadata mi mo mn
    ms mtext""".split()
)
NUMBER: dict[str, int] = {tag: number for number, tag in enumerate(TAGS)}

# the roles of a tag in the walk; the same numbers in _walk.c
BLOCK, SKIPPED, LEAF, KIND, LINK, STRONG, PRE, BREAK = 1, 2, 4, 8, 16, 32, 64, 128
IMAGE, TEMPLATE, SCRIPT, DIALOG, ROOT, MAIN = 256, 512, 1024, 2048, 4096, 8192
UNSEEN, FOREIGN, INTEGRATION, NOSCRIPT = 1 << 14, 1 << 15, 1 << 16, 1 << 17
LINKED, META, FACT, RAW = 1 << 18, 1 << 19, 1 << 20, 1 << 21
HOST, BODY, INPUT, DRAWING = 1 << 22, 1 << 23, 1 << 24, 1 << 25
_TAGS_BY_ROLE: dict[int, str] = {
    BLOCK: """html body main article section nav aside header footer div p h1 h2 h3 h4 h5 h6 ul ol li dl dt dd table
        caption thead tbody tfoot tr td th pre blockquote figure figcaption address hgroup details summary dialog form
        fieldset legend button hr iframe video audio object embed menu search dir listing xmp plaintext center option
        noframes noembed frameset marquee""",
    # left out of the main content, though a browser shows some of them
    SKIPPED: """style noscript title textarea select datalist svg canvas rt rtc rp annotation annotation-xml noframes
        noembed frameset head colgroup br wbr base link meta""",
    LEAF: "img iframe video audio object embed hr input source area script progress meter",
    KIND: "p h1 h2 h3 h4 h5 h6 li dt dd caption td th pre blockquote figcaption summary button legend address",
    LINK: "a",
    STRONG: "b strong",
    PRE: "pre listing xmp plaintext",
    BREAK: "br",
    IMAGE: "img",
    TEMPLATE: "template",
    SCRIPT: "script",
    DIALOG: "dialog",
    # a page that hides these has a script that shows them
    ROOT: "html body",
    # never a copy for those who see, whatever it says
    MAIN: "html body main article",
    # what is inside is not rendered (HTML, 15.3.1), or is a fallback for what browsers can show
    UNSEEN: """area base basefont datalist head link meta noembed noframes param rp script style template title noscript
        iframe video audio canvas progress meter annotation annotation-xml desc metadata""",
    FOREIGN: "svg math",
    INTEGRATION: "foreignobject desc title mi mo mn ms mtext annotation-xml",
    NOSCRIPT: "noscript",
    LINKED: """a area link img script iframe frame form video audio source object embed track input use image""",
    META: "meta",
    FACT: "h1 h2 h3 h4 h5 h6 time address title base html link",
    RAW: "title script style",
    # the elements of HTML that can have a shadow tree; so can those with a hyphen in their name (DOM, 4.8)
    HOST: "article aside blockquote body div footer h1 h2 h3 h4 h5 h6 header main nav p section span",
    BODY: "body",
    INPUT: "input",
    # of SVG and MathML alone
    DRAWING: "use image foreignobject desc metadata mi mo mn ms mtext annotation annotation-xml",
}
ROLES = array("I", (sum(role for role, tags in _TAGS_BY_ROLE.items() if tag in tags.split()) for tag in TAGS))
#: The roles that an element of SVG or MathML can have.
FOREIGN_ROLES = SKIPPED | LINK | SCRIPT | UNSEEN | FOREIGN | INTEGRATION | LINKED | RAW

#: The attributes that hold links, by tag; a srcset holds several.
LINK_KEYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("a", "area"), ("href",)),
    "link": ("href", "imagesrcset"),
    **dict.fromkeys(("img", "source"), ("src", "srcset")),
    **dict.fromkeys(("script", "iframe", "frame", "audio", "embed", "track", "input"), ("src",)),
    "form": ("action",),
    "video": ("src", "poster"),
    "object": ("data",),
}
#: The same of SVG's elements.
SVG_LINK_KEYS = dict.fromkeys(("a", "image", "use", "script"), ("href", "xlink:href"))
SRCSETS = ("srcset", "imagesrcset")

#: Bits of a mark's state: not shown, in a drawing or formula, in a ``noscript``.
IS_UNSEEN, IS_FOREIGN, IS_INERT = 1, 2, 4

#: Bits of ``Elements.inside``: the kinds of an element and its ancestors.
INSIDE: tuple[str, ...] = tuple(
    "main article section nav aside header footer form figure table list item quote heading pre code link details "
    "definitions button math caption".split()
)
INSIDE_BIT: dict[str, int] = {name: 1 << bit for bit, name in enumerate(INSIDE)}
_OF_INSIDE = {
    **{name: name for name in "main article section nav aside header footer form figure table pre button math".split()},
    **dict.fromkeys(("ul", "ol", "menu", "dir"), "list"),
    **dict.fromkeys(("li",), "item"),
    **dict.fromkeys(("blockquote", "q"), "quote"),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "heading"),
    **dict.fromkeys(("code", "samp", "kbd", "tt"), "code"),
    **dict.fromkeys(("caption", "figcaption"), "caption"),
    **{"a": "link", "details": "details", "dl": "definitions", "listing": "pre", "xmp": "pre"},
}
INSIDES = array("I", (INSIDE_BIT[_OF_INSIDE[tag]] if tag in _OF_INSIDE else 0 for tag in TAGS))

#: Words of ``class``, ``id`` and ``itemprop`` by hint. They match words of a page that begin with them; those with
#: ``=`` only the complete word.
WORDS: dict[str, str] = {
    "nav": "nav navigation menu breadcrumb =crumbs =navi",
    "header": "header masthead =hd",
    "footer": "footer colophon copyright =ft =foot",
    "comment": "comment disqus discuss replies =reply =respond livefyre remark",
    "sidebar": "sidebar =side sidecol =rail =aside widget =complementary",
    "related": "related recommend trending popular mostread readnext suggest outbrain taboola =recirc readmore "
    "morefrom =more seealso similar",
    "ad": "=ad =ads advert adsense adsbygoogle adslot sponsor promo =banner =dfp =gpt commercial",
    "newsletter": "newsletter subscri signup optin mailchimp paywall",
    "share": "share sharing social addthis sharethis shariff =follow sharedaddy",
    "cookie": "cookie consent gdpr ccpa onetrust didomi",
    "content": "content entry =post =body =text story prose markdown maincontent postbody posttext richtext",
    "article": "article =news blogpost",
    "main": "=main maincol mainbody =primary",
    "meta": "=meta byline author =date dateline timestamp published =tags =tag taglist categor pubdate postmeta",
    "caption": "caption =credit =credits",
    "modal": "modal popup overlay lightbox =dialog tooltip",
    "search": "search",
    "account": "login signin register =account logout",
    "pager": "pager paginat =paging =prev =next =previous",
    "teaser": "teaser =card =cards =tile =tiles =listing thumb excerpt =feed",
    "unseen": "hidden =sr =visually screenreader =offscreen",
    "edit": "editsection =edit",
    "tool": "toolbar =tools =button =buttons =btn =print =actions",
    "notice": "=notice warning disclaimer =alert =ambox =hatnote",
    "contents": "=toc tableofcontents =contents",
    "infobox": "infobox factbox =navbox =metadata",
    "user": "=user avatar profile username =bio signature",
    "byline": "author byline autor auteur writer =contributor",
    "others": "comment reply replies related recommend popular trending teaser =nav",
    "beside": "sidebar widget footer",
}
#: Bits of ``Elements.hints`` and ``above``.
HINT: dict[str, int] = {name: 1 << bit for bit, name in enumerate(WORDS)}
#: Hints about authors: an element that names one, one about others than the page's own, one beside the text.
BYLINE, OTHERS, BESIDE = HINT["byline"], HINT["others"], HINT["beside"]
_ROLES = {
    "navigation": "nav", "menu": "nav", "menubar": "nav", "banner": "header", "contentinfo": "footer", "main": "main",
    "complementary": "sidebar", "article": "article", "search": "search", "dialog": "modal", "alertdialog": "modal",
    "alert": "notice", "feed": "teaser", "tablist": "tool", "toolbar": "tool", "button": "tool",
}  # fmt: skip
HINT_WORDS = sorted(
    (word.lstrip("=").encode(), HINT[name], word[0] == "=") for name, words in WORDS.items() for word in words.split()
)
ROLE_WORDS = sorted((role.encode(), HINT[name], True) for role, name in _ROLES.items())
