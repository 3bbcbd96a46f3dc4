"""How a report looks: on a screen by day and by night, and on paper."""

from typing import Final

CSS: Final = """
:root{--paper:#f7f7f5;--card:#fff;--ink:#191b1f;--soft:#5d646d;--line:#e3e4e6;--a:#2563c9;--b:#a9c6f2;--good:#2a8a57;
--warn:#c98a12;--bad:#bf3b34;--c0:#2563c9;--c1:#d97a1f;--c2:#2a8a57;--c3:#8a56c2;--c4:#b9447e;--c5:#6b7f2a;--c6:#9aa1a9}
@media (prefers-color-scheme:dark){:root{--paper:#121417;--card:#1a1d22;--ink:#e9ebee;--soft:#9aa3ad;--line:#2d3239;
--a:#6ca4f8;--b:#2f4f80;--good:#4fbb82;--warn:#e0a945;--bad:#ec7a72;--c0:#6ca4f8;--c1:#f0a35b;--c2:#4fbb82;--c3:#b48ae6;
--c4:#e07fb1;--c5:#a8bf5b;--c6:#767f89}}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#ccc;--a:#2563c9;--b:#a9c6f2;--good:#2a8a57;
--warn:#c98a12;--bad:#bf3b34;--c0:#2563c9;--c1:#d97a1f;--c2:#2a8a57;--c3:#8a56c2;--c4:#b9447e;--c5:#6b7f2a;--c6:#9aa1a9}
@page{margin:14mm}body{font-size:10.5pt}main{max-width:none;padding:0}section{box-shadow:none!important;break-inside:avoid-page;
border:0!important;border-top:1px solid var(--line)!important;border-radius:0!important;padding:14px 0!important}
tr,svg,.tiles{break-inside:avoid}h2{break-after:avoid}a{color:inherit!important}}
*{box-sizing:border-box;print-color-adjust:exact;-webkit-print-color-adjust:exact}
html{color-scheme:light dark}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,"Noto Sans",sans-serif}
main{max-width:1060px;margin:0 auto;padding:44px 24px 60px}
@media (max-width:640px){main{padding:26px 12px 40px}section{padding:16px 14px!important}h1{font-size:29px!important}}
header p{margin:.3em 0 0;color:var(--soft);max-width:46em}
.over{font-size:12.5px;letter-spacing:.08em;text-transform:uppercase;color:var(--soft);margin:0 0 6px}
h1{font-size:38px;line-height:1.12;letter-spacing:-.02em;margin:0;overflow-wrap:anywhere}
h2{font-size:19px;letter-spacing:-.01em;margin:0 0 2px}
h3{font-size:14px;margin:22px 0 6px}
.lede{margin:0 0 14px;color:var(--soft);max-width:52em}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:26px 0 22px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.tile b{display:block;white-space:nowrap;font-size:27px;line-height:1.15;letter-spacing:-.02em;font-weight:650;
font-variant-numeric:tabular-nums}
.tile span{font-size:13px;color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:22px 24px;margin:0 0 18px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(400px,100%),1fr));gap:0 34px}
.chart{display:block;width:100%;height:auto;margin:4px 0}
.chart text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
.chart .scale{text-anchor:end}.chart .label,.chart .figure{text-anchor:middle}
.chart .figure{fill:var(--ink);font-weight:600}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px;margin:6px 0 0}
th{text-align:left;font-weight:600;color:var(--soft);font-size:12.5px;border-bottom:1px solid var(--line);
padding:5px 12px 5px 0;white-space:nowrap;vertical-align:bottom}
td{border-bottom:1px solid var(--line);padding:6px 12px 6px 0;vertical-align:top;overflow-wrap:break-word}
td a,td bdi{overflow-wrap:anywhere}
tr:last-child td{border-bottom:0}
th:last-child,td:last-child{padding-right:0}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.t{white-space:nowrap}
td:has(>a){min-width:17em}td:has(>bdi){min-width:9em}
.soft,small{color:var(--soft)}small{font-size:12.5px}
a{color:var(--a);text-decoration:none}a:hover{text-decoration:underline}
code{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.share{display:flex;gap:1px;height:10px;min-width:120px;margin-top:6px;border-radius:3px;overflow:hidden;background:var(--line)}
.share i{display:block;min-width:2px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:8px 0 2px;font-size:13px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.bar{display:block;width:110px}
.bar i{display:block;height:9px;border-radius:0 3px 3px 0;background:var(--a);margin-top:7px;min-width:2px}
.ok{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}
details summary{cursor:pointer;color:var(--a);font-size:13.5px;margin-top:8px}
footer{color:var(--soft);font-size:13px;margin-top:26px}footer p{margin:.4em 0;max-width:62em}
"""

#: Classes of coloured things: what they are in a chart (``fill``) is what they are beside it (``background``).
COLOURS: Final = "".join(
    f".{name}{{fill:var(--{colour});background:var(--{colour})}}"
    for name, colour in {
        "new": "a",
        "known": "b",
        "same": "b",
        "changed": "warn",
        "gone": "bad",
        "fetched": "good",
        "quarantined": "warn",
        "missing": "bad",
        **{f"c{number}": f"c{number}" for number in range(7)},
    }.items()
)
