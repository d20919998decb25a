// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/report"
)

const head = "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: x}\n"

// TestRules has a row a rule: the input, and what is said about it as
// "line:col severity rule: message", in order of the input. Notes are left out.
// Sites begin in line 4, after head.
func TestRules(t *testing.T) {
	for _, tt := range rules {
		t.Run(tt.name, func(t *testing.T) {
			_, r := Parse(files("site.yaml", head+tt.text), "site.yaml")
			r.DropNotes()
			for i, p := range r.Problems {
				got := fmt.Sprintf("%d:%d %s %s: %s", p.Line, p.Column, p.Severity, p.Rule, strings.TrimPrefix(p.String(), fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)))
				if i >= len(tt.want) {
					t.Errorf("too many: %s", got)
				} else if !strings.HasPrefix(got, tt.want[i]) {
					t.Errorf("problem %d:\n got %s\nwant %s", i, got, tt.want[i])
				}
			}
			for _, w := range tt.want[min(len(r.Problems), len(tt.want)):] {
				t.Errorf("not said: %s", w)
			}
		})
	}
}

const layer = "layer: {base: {debian: {suite: trixie}}}\n"

var rules = []struct {
	name, text string
	want       []string
}{
	{"unknown key", "nods: []\n", []string{`4:1 error unknown-key: unknown key "nods"`}},
	{"unknown module", "conf: {sysclt: {}}\n", []string{`4:8 error unknown-key: conf: unknown key "sysclt"`}},
	{"required", "layer: {}\n", []string{`4:8 error required: layer: "base" is missing`, `4:8 error base: layer: base needs exactly one`}},
	{"two bases", "layer: {base: {tar: a, oci: \"x@sha256:" + strings.Repeat("a", 64) + "\"}}\n", []string{`4:15 error base:`}},
	{"oci without digest", "layer: {base: {oci: registry.example.org/base:1}}\n", []string{`4:21 error digest:`}},
	{"snapshot", "layer: {base: {debian: {suite: s, snapshot: 2026}}}\n", []string{`4:45 error snapshot:`}},
	{"security alone", "layer: {base: {debian: {suite: s, security: x}}}\n", []string{`4:45 error contradiction:`}},
	{"kernel argument with blanks", "layer: {base: {tar: a}, kernel: {args: [a b]}}\n", []string{`4:41 error kernel-arg:`}},
	{"kernel argument of ours", "layer: {base: {tar: a}, kernel: {args: [caisson.node=x, init=/bin/sh]}}\n", []string{`4:41 error kernel-arg:`, `4:57 error kernel-arg:`}},
	{"persist", "layer: {base: {tar: a}, persist: [/usr, var/log, /var, /home, /home, /a/../b]}\n",
		[]string{`4:35 error dangerous`, `4:41 error path`, `4:50 error dangerous`, `4:63 warning duplicate`, `4:70 error path`}},
	{"type", "nodes: {}\n", []string{`4:8 error type: nodes: a list belongs here, not a map`}},
	{"node twice", "nodes: [{name: a}, {name: a}]\n", []string{`4:27 error duplicate-node: nodes: the node a is given already, at site.yaml:4:16`}},
	{"mac twice", "nodes: [{name: a, match: {macs: ['52:54:00:00:00:0A']}}, {name: b, match: {macs: [52-54-00-00-00-0a]}}]\n", []string{`4:83 error duplicate-node: nodes: the MAC address 52:54:00:00:00:0a`}},
	{"mac", "nodes: [{name: a, match: {macs: [52:54]}}]\n", []string{`4:34 error mac:`}},
	{"uuid", "nodes: [{name: a, match: {uuids: [1]}}]\n", []string{`4:35 error uuid:`}},
	{"empty node name", "nodes: [{name: \"\"}, {name: a}]\n", []string{`4:16 error node-name: nodes: "" cannot be a node's name`}},
	{"node without a name", "nodes: [{}]\n", []string{`4:9 error required: nodes[0]: "name" is missing`}},
	{"node name of another type", "nodes: [{name: [a]}, {name: null}]\n", []string{`4:16 error type`, `4:22 error required`}},
	{"node name", "nodes: [{name: a b}, {name: mac-1}]\n", []string{`4:16 error node-name`, `4:29 error node-name`}},
	{"expires", "trust: {expires: 1 month}\n", []string{`4:18 error duration`}},
	{"threshold", "trust: {threshold: 2}\n", []string{`4:20 error range: trust: a threshold of 2 with 1 operator keys`}},
	{"on expired", "trust: {onExpired: stop}\n", []string{`4:20 error enum: trust.onExpired: "stop" is none of run, hold`}},
	{"dns", "network: {dns: [ns.example.org]}\n", []string{`4:17 error address:`}},
	{"interface", "network: {interfaces: [{addresses: [192.0.2.1], gateway: x, mtu: 1}]}\n",
		[]string{`4:24 error required: machine.network.interfaces[0]: an interface needs mac or name`, `4:37 error address`, `4:58 error address`, `4:66 error range`}},
	{"certificate", "machine: {cas: [\"-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n\"]}\n", []string{`4:17 error certificate`}},
	{"certificate file", "machine: {cas: [missing.pem]}\n", []string{`4:17 error file: machine: read missing.pem: file does not exist`}},

	{"sysctl twice", "conf:\n  sysctl:\n    net.ipv4.ip_forward: 1\n    net/ipv4/ip_forward: 0\n", []string{`7:5 error duplicate-key: conf.sysctl: "net/ipv4/ip_forward" is the same as "net.ipv4.ip_forward" at site.yaml:6:5`}},
	{"sysctl optional twice", "conf: {sysctl: {vm.swappiness: 1, -vm.swappiness: 2}}\n", []string{`4:35 error duplicate-key`}},
	{"sysctl key", "conf: {sysctl: {../etc: 1, swappiness: 1}}\n", []string{`4:17 error sysctl-key`, `4:28 error sysctl-key`}},
	{"sysctl null", "conf: {sysctl: {vm.swappiness: }}\n", []string{`4:17 error null`}},
	{"sysctl lines", "conf: {sysctl: {vm.swappiness: \"1\\n2\"}}\n", []string{`4:32 error text`}},
	{"sysctl scientific", "conf: {sysctl: {fs.file-max: 2e+06}}\n", []string{`4:30 error scientific`}},
	{"sysctl dangerous", "conf: {sysctl: {kernel.modules_disabled: 1}}\n", []string{`4:42 warning dangerous`}},
	{"sysctl type", "conf: {sysctl: {vm.swappiness: [1]}}\n", []string{`4:32 error type`}},
	{"duplicate yaml key", "conf: {sysctl: {vm.swappiness: 1, vm.swappiness: 2}}\n", []string{`4:35 error duplicate-key: the key "vm.swappiness" is given twice`}},

	{"ethtool value", "conf: {ethtool: {eth0: {tso: bogus}}}\n", []string{`4:30 error enum: conf.ethtool.eth0.tcp-segmentation-offload: Expected 'on' or 'off', got 'bogus'`}},
	{"ethtool twice", "conf: {ethtool: {eth0: {tso: on, tcp-segmentation-offload: off}}}\n", []string{`4:34 error duplicate-key`}},
	{"ethtool interface", "conf: {ethtool: {an-interface-of-20-c: {tso: on}}}\n", []string{`4:18 error interface`}},
	{"ethtool feature", "conf: {ethtool: {eth0: {TSO: on}}}\n", []string{`4:25 error feature`}},

	{"limits empty", "conf: {limits: {a: {domain: '', type: hard, item: nofile, value: 0}}}\n", []string{`4:29 error required`}},
	{"limits missing", "conf: {limits: {a: {type: hard, item: nofile, value: 1}}}\n", []string{`4:20 error required: conf.limits.a: "domain" is missing`}},
	{"limits null", "conf: {limits: {a: }}\n", []string{`4:17 error null`}},
	{"limits bad", "conf: {limits: {a/b: {domain: r, type: firm, item: nofiles, value: many}}}\n",
		[]string{`4:17 error id`, `4:40 error enum: conf.limits["a/b"].type: "firm" is none of`, `4:52 error enum: conf.limits["a/b"]: "nofiles" is not an item`, `4:68 error type`}},
	{"limits twice", "conf: {limits: {a: {domain: r, type: '-', item: core, value: 1}, b: {domain: r, type: soft, item: core, value: 2}}}\n", []string{`4:66 warning duplicate`}},

	{"mount targets", "conf: {mounts: {a: {mnt_tgt: /x/, device: d, type: ext4}, b: {mnt_tgt: //x, device: d, type: ext4}}}\n", []string{`4:72 error duplicate-target: conf.mounts.b: /x is the target of a already`}},
	{"mount on root", "conf: {mounts: {a: {mnt_tgt: /, device: d, type: ext4}}}\n", []string{`4:30 error dangerous`}},
	{"mount path", "conf: {mounts: {a: {mnt_tgt: x, device: d, type: ext4}, b: {mnt_tgt: /x/../../y, device: d, type: ext4}}}\n", []string{`4:30 error path`, `4:70 error path`}},
	{"mount empty", "conf: {mounts: {a: {mnt_tgt: '', device: d, type: t}}}\n", []string{`4:30 error required`}},
	{"mount type", "conf: {mounts: {a: {mnt_tgt: /x, device: d, type: 'a b'}}}\n", []string{`4:51 error type`}},
	{"mount overlay for docker", "conf: {mounts: {a: {mnt_tgt: /var/lib/docker, device: d, type: overlay}}}\n", []string{`4:64 error contradiction`}},
	{"mount on kept folder", "layer: {base: {tar: a}, persist: [/home]}\nconf: {mounts: {a: {mnt_tgt: /home, device: d, type: ext4}}}\n", []string{`5:30 error contradiction`}},
	{"mount unit", "conf: {mounts: {a: {mnt_tgt: /x, device: d, type: t, before: docker}}}\n", []string{`4:62 error unit`}},
	{"mount key", "conf: {mounts: {a: {mnt_tgt: /x, device: d, type: t, option: ro}}}\n", []string{`4:54 error unknown-key`}},

	{"exec rerun", "conf: {exec: {e: {data: '#!x', rerun_policy: sometimes}}}\n", []string{`4:46 error enum: conf.exec.e: BAD 'rerun_policy' FOR 'e'`}},
	{"exec blocking", "conf: {exec: {e: {data: '#!x', rerun_policy: never, blocking_policy: loud}}}\n", []string{`4:70 error enum: conf.exec.e: BAD 'blocking_policy' FOR 'e'`}},
	{"exec timeout", "conf: {exec: {e: {data: '#!x', rerun_policy: never, timeout: infinite}}}\n", []string{`4:62 error range: conf.exec.e: BAD 'timeout' FOR 'e'`}},
	{"exec timeout infinity", "conf: {exec: {e: {data: '#!x', rerun_policy: never, timeout: infinity}}}\n", []string{`4:62 error range: conf.exec.e: BAD 'timeout' FOR 'e'`}},
	{"exec rerun interval", "conf: {exec: {e: {data: '#!x', rerun_interval: 30}}}\n", []string{`4:48 error range: conf.exec.e: BAD 'rerun_interval' FOR 'e': Got '30', but expected >= '60'.`}},
	{"exec retry interval", "conf: {exec: {e: {data: '#!x', retry_interval: 59}}}\n", []string{`4:48 error range: conf.exec.e: BAD 'retry_interval' FOR 'e': Got '59', but expected >= '60'.`}},
	{"exec combination", "conf: {exec: {e: {data: '#!x', rerun_policy: once_successfully, rerun_interval: 60}}}\n", []string{`4:81 error combination: conf.exec.e: BAD COMBINATION`}},
	{"exec retry combination", "conf: {exec: {e: {data: '#!x', rerun_policy: never, retry_interval: 60}}}\n", []string{`4:69 error combination: conf.exec.e: BAD COMBINATION`}},
	{"exec range before combination", "conf: {exec: {e: {data: '#!x', rerun_policy: never, rerun_interval: 1}}}\n", []string{`4:69 error range`}},
	{"exec older timeout", "conf: {exec: {e: {data: '#!x', script_timeout: 5}}}\n", []string{`4:48 warning older-shape`}},
	{"exec both timeouts", "conf: {exec: {e: {data: '#!x', timeout: 1, script_timeout: 5}}}\n", []string{`4:44 error duplicate-key`, `4:60 warning older-shape`}},
	{"exec interpreter", "conf: {exec: {e: {data: echo}}}\n", []string{`4:25 warning script`}},
	{"exec env", "conf: {exec: {e: {data: '#!x', env: {1a: b}}}}\n", []string{`4:38 error env`}},
	{"exec count", "conf: {exec: {e: {data: '#!x', rerun_max_count: -1, retry_max_count: x}}}\n", []string{`4:49 error range`, `4:70 error type`}},
	{"exec name", "conf: {exec: {a/b: {data: '#!x'}}}\n", []string{`4:15 error id`}},
	{"exec empty", "conf: {exec: {e: }}\n", []string{`4:15 error null`}},

	{"perm list", "conf:\n  perm:\n  - {path: /x, owner: root}\n", []string{`6:3 warning older-shape: conf.perm: perm as a bare list`}},
	{"perms", "conf: {perms: [{path: /x, owner: root}]}\n", []string{`4:15 warning older-shape: conf.perms`}},
	{"perm and perms", "conf: {perm: {}, perms: []}\n", []string{`4:25 error older-shape`}},
	{"perm mode", "conf: {perm: {paths: [{path: /x, permissions: 0o640}, {path: /x, permissions: 0689}]}}\n", []string{`4:47 error mode`, `4:79 error mode`}},
	{"perm path", "conf: {perm: {paths: [{path: x, owner: a}, {path: '/x[', owner: a}, {owner: a}]}}\n", []string{`4:30 error path`, `4:51 error path`, `4:69 error required`, `4:69 error path`}},
	{"perm several paths", "conf: {perm: {paths: [{path: /x /y, owner: a}]}}\n", []string{`4:30 warning older-shape`}},
	{"perm nothing asked", "conf: {perm: {paths: [{path: /x}]}}\n", []string{`4:23 warning no-effect`}},
	{"perm owner", "conf: {perm: {paths: [{path: /x, owner: 'a:b'}]}}\n", []string{`4:41 error owner`}},
	{"perm shadow", "conf: {perm: {paths: [{path: /etc/shadow, permissions: 0644}]}}\n", []string{`4:56 error dangerous`}},
	{"perm policy", "conf: {perm: {rerun_policy: x}}\n", []string{`4:29 error enum: conf.perm: BAD 'rerun_policy' Got 'x'`}},
	{"perm interval", "conf: {perm: {rerun_interval: 30}}\n", []string{`4:31 error range: conf.perm: BAD 'rerun_interval' Got '30', but expected >= '60'.`}},
	{"perm combination", "conf: {perm: {rerun_policy: never, rerun_interval: 60}}\n", []string{`4:52 error combination: conf.perm: BAD COMBINATION`}},

	{"package blacklisted by default", layer + "conf: {apt: {packages: [{name: telnetd}]}}\n", []string{`5:32 error contradiction: conf.apt.packages[0]: package telnetd is requested and blacklisted`}},
	{"package blacklisted", layer + "conf: {apt: {packages: {g: [{name: jq}]}, blacklistpkgs: [jq]}}\n", []string{`5:36 error contradiction`}},
	{"package twice", layer + "conf: {apt: {packages: [{name: jq}, {name: jq}, {name: jq, version: 1}]}}\n", []string{`5:44 warning duplicate`, `5:56 error contradiction`}},
	{"package name", layer + "conf: {apt: {packages: [{name: J Q}], hold: ['-x']}}\n", []string{`5:32 error package-name`, `5:46 error package-name`}},
	{"package repo", layer + "conf: {apt: {packages: [{name: jq, repo: r}]}}\n", []string{`5:36 error unknown-key`}},
	{"package version", layer + "conf: {apt: {packages: [{name: jq, version: '1 2'}]}}\n", []string{`5:45 error version`}},
	{"debconf", layer + "conf: {apt: {packages: [{name: jq, debconf: [{question: q, question_type: t}]}]}}\n", []string{`5:46 error required`}},
	{"strict alone", layer + "conf: {apt: {strict: true}}\n", []string{`5:22 error dangerous`}},
	{"repository", layer + "conf: {apt: {repositories: {r: {url: no url, distributions: [], components: [a b]}}}}\n", []string{`5:38 error url`, `5:38 warning no-key`, `5:78 error text`}},
	{"repository key", layer + "conf: {apt: {repositories: {r: {url: 'https://a.example.org', distributions: [s], components: [main], gpgkey: x}}}}\n", []string{`5:111 error key`}},

	{"password", layer + "conf: {uamlite: {users: [{user_name: u, user_crypt_passwd: secret}]}}\n", []string{`5:60 error password: conf.uamlite.users[0].user_crypt_passwd: BAD PASSWORD FOR 'u'`}},
	{"password empty", layer + "conf: {uamlite: {users: [{user_name: u, user_crypt_passwd: ''}]}}\n", []string{`5:60 error password: conf.uamlite.users[0].user_crypt_passwd: BAD PASSWORD FOR 'u'`}},
	{"password weak", layer + "conf: {uamlite: {users: [{user_name: u, user_crypt_passwd: $1$saltsalt$qjXMvbEw8oaL.CzflDtaK/}]}}\n", []string{`5:60 warning password`}},
	{"ssh key", layer + "conf: {uamlite: {users: [{user_name: u, user_sshkeys: [ssh-ed25519 AAAA]}]}}\n", []string{`5:56 error ssh-key: conf.uamlite.users[0].user_sshkeys[0]: BAD SSH KEY FOR 'u'`}},
	{"ssh keys empty", layer + "conf: {uamlite: {users: [{user_name: u, user_sshkeys: []}]}}\n", []string{`5:26 warning unmanaged`}},
	{"user twice", layer + "conf: {uamlite: {users: [{user_name: u}, {user_name: u}]}}\n", []string{`5:54 error duplicate-user`}},
	{"user name", layer + "conf: {uamlite: {users: [{user_name: root}, {user_name: A}]}}\n", []string{`5:38 error user-name`, `5:57 error user-name`}},
	{"user id", layer + "conf: {uamlite: {users: [{user_name: u, user_uid: 0}]}}\n", []string{`5:51 error range`}},
	{"user flag", layer + "conf: {uamlite: {users: [{user_name: u, user_sudo: maybe}]}}\n", []string{`5:52 error type`}},
	{"user ids twice", layer + "conf: {uamlite: {users: [{user_name: u, user_uid: 1000}, {user_name: v, user_uid: 1000}]}}\n", []string{`5:83 error duplicate-user`}},
	{"builtin", layer + "conf: {uamlite: {builtin_account: debian, users: [{user_name: u, user_sudo: true}]}}\n", []string{`5:35 warning lock-out`}},
	{"group and shell", layer + "conf: {uamlite: {users: [{user_name: u, user_groups: [A B], user_shell: sh}]}}\n", []string{`5:55 error user-name`, `5:73 error path`}},

	{"profile twice", layer + "conf:\n  apparmor:\n    profiles:\n      a: |\n        profile p { }\n      b: |\n        profile p flags=(complain) { }\n", []string{`10:7 error duplicate-profile: conf.apparmor.profiles.b: profile p is defined by a too`}},
	{"profile empty", layer + "conf: {apparmor: {profiles: {a: ''}}}\n", []string{`5:33 error required`}},
	{"profile braces", layer + "conf: {apparmor: {profiles: {a: 'profile p { '}}}\n", []string{`5:33 error profile`}},
	{"profile file", layer + "conf: {apparmor: {profiles: {../a: 'profile p { }'}}}\n", []string{`5:30 error id`}},
	{"complain quoted", layer + "conf: {apparmor: {complain_mode: \"false\"}}\n", []string{`5:34 warning quoted-flag`}},

	{"host twice", "conf: {overrides: {divingbell_sysctl: {hosts: [{name: a}, {name: a}]}}}\n", []string{`4:66 error duplicate-override: conf.overrides.divingbell_sysctl.hosts[1]: host "a" has an entry already, at site.yaml:4:55`}},
	{"stanza", "conf: {overrides: {divingbell-sysctl: {}}}\n", []string{`4:20 error unknown-key`}},
	{"label dead", "conf:\n  overrides:\n    divingbell_sysctl:\n      labels:\n      - label: {key: k, values: [a, b]}\n      - label: {key: k, values: [b]}\n      - label: {key: k, values: [a, c]}\n", []string{`8:9 warning dead-override: conf.overrides.divingbell_sysctl: the entry has no effect: label k=a|b`}},
	{"override of another module", "conf: {overrides: {divingbell_sysctl: {hosts: [{name: a, conf: {limits: {}}}]}}}\n", []string{`4:65 warning dead-override`}},
	{"override key", "conf: {overrides: {divingbell_sysctl: {hosts: [{name: a, conf: {sysctls: {}}}]}}}\n", []string{`4:65 error unknown-key`}},
	{"override map over list", layer + "conf: {apt: {packages: [{name: jq}]}, overrides: {divingbell_apt: {hosts: [{name: a, conf: {apt: {packages: {g: []}}}}]}}}\n", []string{`5:109 warning dead-override`}},
	{"override wrong value", "conf: {overrides: {divingbell_ethtool: {hosts: [{name: a, conf: {ethtool: {eth0: {tso: 7}}}}]}}}\n", []string{`4:88 error enum`}},
	{"override of no node", "nodes: [{name: node1}]\nconf: {overrides: {divingbell_sysctl: {hosts: [{name: node2}]}}}\n", []string{`5:55 warning unknown-node`}},
	{"override without name", "conf: {overrides: {divingbell_sysctl: {hosts: [{conf: {}}], labels: [{label: {key: k}}]}}}\n", []string{`4:48 error required`, `4:78 error required`}},
	{"health gates", "health: [{exec: x}, {exec: y}]\n", []string{`4:10 error not-supported: health: health gates are reserved`}},
	{"machine override", "machine: {overrides: {hosts: [{name: a, conf: {kernel: {arg: [x]}}}]}}\n", []string{`4:57 error unknown-key`}},
}

// Notes are worth knowing and fail nothing.
func TestNotes(t *testing.T) {
	for text, want := range map[string]string{
		layer:                                "no-login",
		"conf: {exec: {e: {data: '#!x'}}}\n": "once-a-boot",
		"conf: {exec: {e: {data: '#!x', rerun_interval: infinity}}}\n":                                           "infinity",
		"conf: {sysctl: {vm.overcommit_memory: 2}}\n":                                                            "dangerous",
		"conf: {uamlite: {users: [{user_name: u}]}}\n":                                                           "no-keys",
		"manifests: {daemonset_limits: false}\nconf: {limits: {}}\n":                                             "off",
		"nodes: [{name: a}]\nconf: {overrides: {divingbell_exec: {labels: [{label: {key: k, values: [v]}}]}}}\n": "unused-label",
	} {
		s, r := Parse(files("site.yaml", head+text), "site.yaml")
		r.Strict()
		if s == nil || len(r.Problems) != 1 || r.Problems[0].Rule != want || r.Problems[0].Severity != report.Note {
			t.Errorf("%s: %v, want a note of rule %s", text, r.Problems, want)
		}
	}
}
