"""docs/operate/security.md: its tables against the code."""

from __future__ import annotations

import re

from blocks import page

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import TLS_PARAMETERS, ManagementUrl

PAGE = "docs/operate/security.md"


def test_the_urls_and_the_table_name_each_parameter() -> None:
    amqps, https = re.findall(r"^(?:amqps|https)://.*$", page(PAGE), re.MULTILINE)
    assert ConnectionSettings.from_uri(amqps).tls
    assert ManagementUrl.of(https).tls
    # These change nothing, and are taken since the URIs of Erlang's client have them.
    without_effect = {"fail_if_no_peer_cert", "customize_hostname_check", "depth"}
    section = page(PAGE).partition("## TLS")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(TLS_PARAMETERS) - without_effect
