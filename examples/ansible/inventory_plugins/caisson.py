# SPDX-License-Identifier: Apache-2.0
"""An inventory of Ansible from the service of a caisson fleet."""

DOCUMENTATION = """
name: caisson
short_description: Nodes, labels and states of a caisson fleet
description:
  - Asks the service of a fleet, C(caisson fleet serve), for its nodes. Each node is a host.
  - What a node reports is the word of a machine. It is marked unsafe, so no template in it is evaluated.
  - Host variables begin with C(caisson_) and are the fields of a row of C(caisson fleet status -o json);
    C(caisson_labels) is a dictionary of the labels in the service's site.
extends_documentation_fragment: [constructed, inventory_cache]
options:
  plugin: {description: The name of this plugin., required: true, choices: [caisson]}
  url:
    description: URL of the fleet's service.
    default: http://127.0.0.1:8090
    env: [{name: CAISSON_FLEET}]
  token_file:
    description: File with a token of the service, mode 0600.
    type: path
    env: [{name: CAISSON_FLEET_TOKEN_FILE}]
  ca_file: {description: PEM certificate authorities to trust for the service and no others., type: path}
  query:
    description: "Words of the service's list of nodes, as in {condition: trouble, label: [rack=r1], set: storage}."
    type: dict
    default: {}
  timeout: {description: Seconds that one request may take., type: int, default: 30}
"""

EXAMPLES = """
plugin: caisson
url: https://fleet.example.org
token_file: /etc/ansible/fleet.token
query: {label: [rack=r1]}
keyed_groups:
  - {key: caisson_condition, prefix: condition}
  - {key: caisson_labels.rack, prefix: rack}
compose:
  ansible_host: inventory_hostname ~ ".example.org"
"""

import ipaddress
import json
import os
import re
import ssl
import stat
import time
import urllib.error
import urllib.parse
import urllib.request

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

MOST = 64 << 20  # bytes of one answer: a page of nodes has less than 1 MiB
NODES = 1 << 20  # nodes of a fleet
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """The service never sends anybody elsewhere."""

    def redirect_request(self, *args):
        return None


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    NAME = "caisson"

    def verify_file(self, path):
        return super().verify_file(path) and path.endswith(("caisson.yaml", "caisson.yml"))

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        self.load_cache_plugin()
        key, use = self.get_cache_key(path), self.get_option("cache")
        nodes = self._cache.get(key) if use and cache else None
        if nodes is None:
            nodes = self.nodes()
            if use:
                self._cache[key] = nodes
        strict = self.get_option("strict")
        for node in nodes:
            host = inventory.add_host(node["name"])
            fields = dict(node, labels=dict(l.split("=", 1) for l in node.get("labels") or []))
            for name, value in fields.items():
                inventory.set_variable(host, "caisson_" + name, wrap_var(value))
            known = inventory.get_host(host).get_vars()
            self._set_composite_vars(self.get_option("compose"), known, host, strict=strict)
            self._add_host_to_composed_groups(self.get_option("groups"), known, host, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), known, host, strict=strict)

    def nodes(self):
        """Returns the rows of all nodes that meet the query, asked for by the page."""
        rows = {}
        query = dict(self.get_option("query"), sort="name")
        while True:
            page = self.get(dict(query, **{"from": len(rows)}))
            if not isinstance(page.get("nodes"), list) or not isinstance(page.get("all"), int) or page["all"] > NODES:
                raise AnsibleParserError("the service's answer is not a list of nodes")
            before = len(rows)
            for row in page["nodes"]:
                if not isinstance(row, dict) or not NAME.fullmatch(str(row.get("name"))):
                    raise AnsibleParserError("the service lists a node without a valid name")
                rows[row["name"]] = row
            if len(rows) >= page["all"]:
                return list(rows.values())
            if len(rows) == before:
                raise AnsibleParserError("the fleet changed while it was listed: try again")

    def get(self, query):
        """Returns the decoded answer to one request."""
        base = self.get_option("url").rstrip("/")
        request = urllib.request.Request(base + "/v1/nodes?" + urllib.parse.urlencode(query, doseq=True))
        if token := self.token(urllib.parse.urlsplit(base)):
            request.add_unredirected_header("Authorization", "Bearer " + token)
        try:
            handlers = [NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.get_option("ca_file")))]
            if loopback(urllib.parse.urlsplit(base).hostname):
                handlers.append(urllib.request.ProxyHandler({}))
            return json.loads(self.read(urllib.request.build_opener(*handlers), request))
        except urllib.error.HTTPError as error:
            raise AnsibleParserError(f"{request.full_url}: {error.code}: {error.read(500).decode(errors='replace')}") from error
        except (OSError, ValueError) as error:
            raise AnsibleParserError(f"{request.full_url}: {error}") from error

    def read(self, opener, request):
        """Returns the body of the answer, which has one deadline and a size."""
        limit = self.get_option("timeout")
        until, body = time.monotonic() + limit, b""
        with opener.open(request, timeout=limit) as answer:
            while part := answer.read1(1 << 16):
                body += part
                if len(body) > MOST:
                    raise ValueError(f"the answer has more than {MOST >> 20} MiB")
                if time.monotonic() > until:
                    raise TimeoutError(f"no whole answer in {limit} s")
        return body

    def token(self, base):
        """Returns the token of the service, or None where no file is given."""
        path = self.get_option("token_file")
        if not path:
            return None
        if base.scheme != "https" and not loopback(base.hostname):
            raise AnsibleParserError(f"a token is not sent to {base.netloc} without TLS")
        try:
            with open(path, encoding="utf-8") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise AnsibleParserError(f"{path}: others can read the token: chmod 0600 it")
                return file.read(4096).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AnsibleParserError(f"{path}: {error}") from error


def loopback(host):
    """Reports whether host never leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
