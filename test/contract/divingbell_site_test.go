// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"strings"
)

// What the site says of a values file, before anything is built or sent.

func needsALayer(p *probe) {
	const conf = "conf:\n  apt: {packages: [{name: jq}]}\n  uamlite: {users: [{user_name: ann, user_sshkeys: [Unmanaged]}]}\n  apparmor: {profiles: {p: 'profile p { }'}}\n"
	s, said := p.parse("site.yaml", oneNode+conf)
	p.holds("a Site without a layer", s == nil, "it is valid")
	for _, kind := range []string{"apt", "uamlite", "apparmor"} {
		p.contains("a Site without a layer", said, "error needs-layer: site.yaml", "conf."+kind+": "+kind+" needs a layer")
	}
	_, said = p.parse("values.yaml", conf, "nodes.yaml", "nodes: [{name: superhost}]")
	p.contains("Divingbell's own values", said, "warning needs-layer", "conf.apt: apt needs a layer")
	s, said = p.parse("site.yaml", hosts+conf)
	if s == nil {
		p.Fatalf("attached hosts:\n%s", said)
	}
	o, err := s.Overlay("superhost", "")
	p.must(err)
	var told []string
	for _, n := range o.NeedsLayer {
		told = append(told, n.Item+" "+n.Key)
	}
	p.contains("what attached hosts are told to report", strings.Join(told, "\n"), "apt jq", "uamlite ann", "apparmor p")
}

func mountOptions(p *probe) {
	for _, option := range []string{"loop", "user", "noauto", "remount"} {
		s, said := p.parse("site.yaml", hosts+"conf: {mounts: {a: {mnt_tgt: /a, device: tmpfs, type: tmpfs, options: "+option+"}}}\n")
		p.holds(option, s == nil, "it is valid")
		p.contains(option, said, "error mount-option", "conf.mounts.a")
	}
}

func mapOverList(p *probe) {
	const conf = "conf:\n  apt: {packages: [{name: jq}]}\n  overrides: {divingbell_apt: {hosts: [{name: superhost, conf: {apt: {packages: {more: [{name: tree}]}}}}]}}\n"
	s, said := p.parse("site.yaml", baked+conf)
	p.holds("in a Site", s == nil, "it is valid")
	p.contains("in a Site", said, "error dead-override", "conf.apt.packages: a map cannot replace a value or a list: the base stays")
	s, said = p.parse("values.yaml", conf, "nodes.yaml", "nodes: [{name: superhost}]")
	p.holds("in Divingbell's own values", s != nil, "%s", said)
	p.contains("in Divingbell's own values", said, "warning dead-override", "conf.apt.packages")
	p.documented("overrides.md", "a warning that names the key (Divingbell: silently); in a Site an error")
}

func noSuchKey(p *probe) {
	const conf = "conf: {overrides: {divingbell_sysctl: {hosts: [{name: another, conf: {sysctl: {fooKey: 1}}}]}}}\n"
	s, said := p.parse("values.yaml", conf, "nodes.yaml", "nodes: [{name: superhost}]")
	p.holds("a key without a dot or slash", s == nil, "it is valid")
	p.contains("a key without a dot or slash", said, `error sysctl-key: values.yaml:1:`, `"fooKey" is not a kernel parameter`)
	p.documented("divingbell.md", "A key that no kernel can have, such as one without a dot or slash, is an error, also in an override for a host that is not there")
}

func interfaceKeys(p *probe) {
	_, said := p.parse("site.yaml", hosts+"conf: {sysctl: {net.ipv4.conf.eth0.100.forwarding: 1}}\n")
	p.contains("a dot in an interface's name", said, "error sysctl-key", "write net.ipv4.conf.eth0/100.forwarding for the interface eth0.100")
	_, said = p.parse("site.yaml", hosts+"conf: {sysctl: {net.ipv4.conf.*.forwarding: 1}}\n")
	p.contains("a pattern", said, "error sysctl-key", "a pattern is not a kernel parameter")
	i := p.items(hosts + "conf: {sysctl: {net.ipv4.conf.eth0/100.forwarding: 1}}\n")
	p.equal("the right spelling", "net/ipv4/conf/eth0.100/forwarding", i.Sysctl[0].Key)
}

func quotedSwitch(p *probe) {
	const conf = "conf: {sysctl: {vm.swappiness: 10}}\n"
	s, said := p.parse("site.yaml", hosts+"manifests: {daemonset_sysctl: 'false'}\n"+conf)
	if s == nil {
		p.Fatal(said)
	}
	p.contains("a quoted switch", said, "warning quoted", `the text "false" was true in Helm; here it means false`, "sysctl is off")
	o, err := s.Overlay("superhost", "")
	p.must(err)
	p.equal("parameters of a module that is off", 0, len(o.Items.Sysctl))
	p.documented("divingbell.md", "`'false'` in quotes too, with a warning (it was true in Helm)")
}

func infiniteCount(p *probe) {
	i := p.items(hosts + "conf: {exec: {e: {data: \"#!/bin/sh\\n\", rerun_interval: 60, rerun_max_count: infinite, retry_max_count: 2}}}\n")
	p.equal("infinite is not a bound", int64(0), i.Exec[0].RerunMax)
	p.equal("a number is one", int64(2), i.Exec[0].RetryMax)
	p.documented("operations.md", "`rerunMax` and `retryMax` bound the repetitions of one boot")
	p.documented("divingbell.md", "a count is that of one boot, `infinite` is not a bound")
}
