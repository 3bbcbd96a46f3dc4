"""Host keys: measured cases of the IA's rule, the three forms against each other, and ranges against brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cc_pipeline.commoncrawl.key_ranges import RangeSet
from cc_pipeline.commoncrawl.surt import has_several_www, surt_key
from cc_pipeline.commoncrawl.target_text import parse_target
from cc_pipeline.extensions.host_facts.host_keys import HostRanges, host_key

#: Measured with the IA's library, which Common Crawl's host index is made with.
MEASURED = {
    "www.example.com": "com,example",
    "www2.example.com": "com,example",
    "wwww.example.com": "com,example,wwww",
    "www-7.example.com": "com,example,www-7",
    "www.www.example.com": "com,example,www",
    "www.com": "com",
    "www.co.uk": "uk,co",
    "EXAMPLE.com.": "com,example",
    "example.com:8443": "com,example:8443",
    "example.com:80": "com,example",
    "bücher.de": "de,xn--bcher-kva",
    "192.168.0.1": "1,0,168,192",
    "[2001:db8::1]": "2001:db8::1",
    "2001:db8::1": "2001:db8::1",
}


@pytest.mark.parametrize(("host", "key"), MEASURED.items())
def test_measured_keys(host: str, key: str) -> None:
    found = host_key(host)
    assert found is not None
    assert found.surt == key


@pytest.mark.parametrize(("port", "key"), [("443", "com,example"), ("80", "com,example:80"), ("", "com,example")])
def test_a_scheme_has_its_own_port(port: str, key: str) -> None:
    found = host_key(f"example.com:{port}" if port else "example.com", scheme="https")
    assert found is not None
    assert found.surt == key


@pytest.mark.parametrize(
    ("text", "form", "www", "domain"),
    [
        ("www.example.co.uk", "host", True, "example.co.uk"),
        ("blog.example.co.uk", "host", False, "example.co.uk"),
        ("uk.co.example.www", "reversed_host", True, "example.co.uk"),
        ("com.example:8080", "reversed_host", False, "example.com"),
        ("uk,co,example", "surt_host", None, "example.co.uk"),
        ("uk,co,example:8443", "surt_host", None, "example.co.uk"),
        ("www.com", "host", True, "www.com"),
        ("com", "surt_host", None, None),
        ("192.168.0.1", "host", False, None),
        ("2001:db8::1", "surt_host", None, None),
    ],
)
def test_domain_and_www(text: str, form: str, www: bool | None, domain: str | None) -> None:
    found = host_key(text, form)
    assert found is not None
    assert (found.www, found.domain) == (www, domain)


@pytest.mark.parametrize("text", ["", " ", ".", ":80"])
def test_what_names_no_host(text: str) -> None:
    assert host_key(text) is None
    assert host_key(text, "reversed_host") is None


LABEL = st.sampled_from(["www", "www2", "wwww", "example", "examplex", "example-x", "a", "blog", "com", "uk", "co"])
HOST = st.lists(LABEL, min_size=1, max_size=4).map(lambda labels: ".".join([*labels, "com"]))
PORT = st.sampled_from(["", "", "", ":80", ":443", ":8443", ":8080"])


@given(HOST, PORT)
def test_all_forms_of_a_host_have_the_key_of_its_pages(host: str, port: str) -> None:
    plain = host_key(host + port)
    turned = host_key(".".join(reversed(host.split("."))) + port, "reversed_host")
    assert plain is not None
    assert plain == turned
    # the host index drops one www label, keys of URLs all of them
    if not has_several_www(host):
        assert plain.surt == surt_key(f"http://{host}{port}/")[:-2]
    again = host_key(plain.surt, "surt_host")
    assert again is not None
    assert again.surt == plain.surt


TARGET = st.one_of(
    HOST,
    HOST.map("host:{}".format),
    HOST.map("host:{}:8443".format),
    HOST.map("https://{}/page".format).map("url:{}".format),
    HOST.map("prefix:http://{}:8080/a/".format),
    HOST.map(lambda host: "rev:" + ".".join(reversed(host.split(".")))),
    HOST.map(lambda host: "rev:" + ".".join(reversed(host.split(".")))[:-1]),
    st.sampled_from(["tld:com", "suffix:co.com", "set:s = example.com, host:www.a.com", "1.2.3.4", "www.com"]),
)


@settings(max_examples=150)
@given(TARGET, st.lists(st.tuples(HOST, PORT), min_size=1, max_size=12))
def test_ranges_of_any_form_miss_no_host(text: str, hosts: list[tuple[str, str]]) -> None:
    """What a target means is what its URL keys say; ranges of reversed and plain hosts may only hold more."""
    target = parse_target(text)
    ranges = HostRanges(target)
    forms = {form: RangeSet(ranges.ranges_in(form, "kept")) for form in ("reversed_host", "host")}
    exact = RangeSet(ranges.ranges_in("surt_host"))
    for host, port in hosts:
        key = host_key(host + port)
        assert key is not None
        held = ranges.contains(key.surt)
        assert held == exact.holds(key.surt.encode())
        asked = target.place.host if target.place else ""
        several = has_several_www(host) or has_several_www(asked)
        if target.kind in ("domain", "host", "tld", "suffix") and target.place and not several:
            assert target.place.port is not None or held == RangeSet(target.ranges).holds(
                surt_key(f"http://{host}{port}/").encode()
            )
        if held:
            assert forms["reversed_host"].holds((".".join(reversed(host.split("."))) + port).encode())
            assert forms["host"].holds((host + port).encode())


def test_neighbours_of_a_domain_are_not_its_hosts() -> None:
    ranges = HostRanges(parse_target("example.com"))
    held = ["com,example", "com,example,blog", "com,example:8443", "com,example,a:81"]
    others = ["com,examplex", "com,example-x", "com,exampl", "com", "com,examplex,blog", "org,example"]
    assert [key for key in [*held, *others] if ranges.contains(key)] == held
