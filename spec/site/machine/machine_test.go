// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

func compile(t *testing.T, text string) (Settings, *report.Report) {
	t.Helper()
	c := &shape.Checker{Report: &report.Report{}}
	src := &report.Source{Name: "site.yaml", Data: []byte(text)}
	return Compile(c, tree.Parse(src, src.Data, c.Report)[0]), c.Report
}

func TestCompile(t *testing.T) {
	got, r := compile(t, `
kernel: {args: [quiet, hugepages=16, 'dyndbg="module i40e +p; module ice +p"']}
network:
  dns: ["2001:DB8::53", 192.0.2.53]
  search: [example.org]
  ntp: [time.example.org, 192.0.2.123]
  interfaces:
  - {mac: 52-54-00-12-34-AB, addresses: [192.0.2.7/24], gateway: 192.0.2.1, mtu: 9000}
  - {name: eth0.100, addresses: ["2001:db8::7/64"]}
`)
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	want := Settings{Args: []string{"quiet", "hugepages=16", `dyndbg="module i40e +p; module ice +p"`}, Network: spec.Network{DNS: []string{"2001:db8::53", "192.0.2.53"}, Search: []string{"example.org"},
		NTP: []string{"time.example.org", "192.0.2.123"}, Interfaces: []spec.Interface{
			{MAC: "52:54:00:12:34:ab", Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1", MTU: 9000},
			{Name: "eth0.100", Addresses: []string{"2001:db8::7/64"}}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
}

func TestAgent(t *testing.T) {
	for text, want := range map[string]*spec.Agent{
		"{}":          nil,
		"agent: null": nil,
		"agent: {metrics: {file: /srv/c.prom, listen: '127.0.0.1:9469'}}": {Metrics: &spec.Metrics{File: "/srv/c.prom", Listen: "127.0.0.1:9469"}},
		"agent: {report: {url: 'https://fleet.example/'}}":                {Report: &spec.Reporting{URL: "https://fleet.example", Interval: 300}},
		"agent: {report: {url: 'https://fleet.example', interval: 10m}}":  {Report: &spec.Reporting{URL: "https://fleet.example", Interval: 600}},
		"agent: {credentials: {registry: pull}}":                          {Credentials: &spec.Credentials{Registry: "pull"}},
		"agent: {report: {registry: r.example/a}, credentials: {report: push}}": {Report: &spec.Reporting{Registry: "r.example/a", Interval: 3600},
			Credentials: &spec.Credentials{Report: "push"}},
	} {
		got, r := compile(t, text+"\n")
		if d := cmp.Diff(want, got.Agent); d != "" || r.Err() != nil {
			t.Errorf("%s: %v\n%s", text, r.Err(), d)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, rule := range map[string]string{
		"agent: {credentials: {report: token}}":                                      "no-report",
		"agent: {credentials: {report: token}, metrics: {listen: '127.0.0.1:9469'}}": "no-report",
		"kernel: {args: ['a b']}":                                                    "kernel-arg",
		`kernel: {args: ['a="b']}`:                                                   "kernel-arg",
		`kernel: {args: ['"a b"']}`:                                                  "kernel-arg",
		`kernel: {args: ['"init=/bin/sh"']}`:                                         "kernel-arg",
		`kernel: {args: ['a="b" c']}`:                                                "kernel-arg",
		`kernel: {args: ['init="/bin/sh"']}`:                                         "kernel-arg",
		"network: {interfaces: [{name: eth0, addresses: [192.0.2.7/24], routes: [{to: 0.0.0.0/0, via: 192.0.2.1, metric: 0}]}]}":                "range",
		"network: {interfaces: [{name: b, dhcp: ipv4, bond: {members: ['52:54:00:12:34:ab'], mode: 802.3ad, primary: 52-54-00-12-34-ab}}]}":     "conflict",
		"network: {interfaces: [{name: b, dhcp: ipv4, bond: {members: ['52:54:00:12:34:ab'], mode: balance-tlb, primary: 52-54-00-12-34-ac}}]}": "unknown-name",
		"kernel: {args: [caisson.node=x]}":                                             "kernel-arg",
		"kernel: {args: [init=/bin/sh]}":                                               "kernel-arg",
		"network: {dns: [ns.example.org]}":                                             "address",
		"network: {search: ['a b']}":                                                   "host-name",
		"network: {ntp: ['-x']}":                                                       "host-name",
		"network: {interfaces: [{name: eth0}]}":                                        "required",
		"network: {interfaces: [{name: 'eth*', addresses: [192.0.2.7/24]}]}":           "interface",
		"network: {interfaces: [{mac: x, addresses: [192.0.2.7/24]}]}":                 "mac",
		"network: {interfaces: [{name: eth0, addresses: [192.0.2.7]}]}":                "address",
		"network: {interfaces: [{name: eth0, addresses: [192.0.2.7/24], mtu: 100}]}":   "range",
		"network: {interfaces: [{name: eth0, addresses: [192.0.2.7/24], gateway: x}]}": "address",
	} {
		if _, r := compile(t, text+"\n"); r.Err() == nil || r.Problems[0].Rule != rule {
			t.Errorf("%s: %v, want rule %s", text, r.Problems, rule)
		}
	}
}

func TestCertificateProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":  "no PEM certificate",
		"x": "no PEM certificate",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "type PRIVATE KEY",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "cannot be read",
	} {
		if got := CertificateProblem(text); !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
