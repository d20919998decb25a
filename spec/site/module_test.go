// SPDX-License-Identifier: Apache-2.0

package site

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
)

// compileConf compiles a conf for one node, with or without a layer.
func compileConf(t *testing.T, baked bool, conf string) (spec.Items, spec.Recipe) {
	t.Helper()
	text := head + "nodes: [{name: a}]\n" + conf
	if baked {
		text += withLayer
	}
	s := mustParse(t, text)
	o, err := s.Overlay("a", "")
	if err != nil {
		t.Fatal(err)
	}
	var recipe spec.Recipe
	if baked {
		vs, err := s.Variants()
		if err != nil {
			t.Fatal(err)
		}
		recipe = vs[0].Recipe
	}
	return o.Items, recipe
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestMounts(t *testing.T) {
	i, _ := compileConf(t, false, `conf:
  mounts:
    c: {mnt_tgt: /c/, device: tmpfs, type: tmpfs, options: 'ro, size=1m,'}
    a: {mnt_tgt: //a/./b, device: nas:/x, type: nfs, before: ''}
    b: {mnt_tgt: /b, device: nas:/x, type: nfs4, before: a.service b.service, after: ''}
    d: {mnt_tgt: /d, device: /dev/x, type: xfs, options: _netdev, after: [x.target]}
    e: {mnt_tgt: /e, device: /dev/y, type: xfs, options: _netdev}
`)
	docker := []string{"docker.service"}
	diff(t, "mounts", []spec.Mount{
		{ID: "a", Device: "nas:/x", Target: "/a/b", Type: "nfs", Before: docker, After: []string{"network-online.target"}},
		{ID: "b", Device: "nas:/x", Target: "/b", Type: "nfs4", Before: []string{"a.service", "b.service"}},
		{ID: "c", Device: "tmpfs", Target: "/c", Type: "tmpfs", Options: []string{"ro", "size=1m"}, Before: docker},
		{ID: "d", Device: "/dev/x", Target: "/d", Type: "xfs", Options: []string{"_netdev"}, Before: docker, After: []string{"x.target"}},
		{ID: "e", Device: "/dev/y", Target: "/e", Type: "xfs", Options: []string{"_netdev"}, Before: docker, After: []string{"network-online.target"}},
	}, i.Mounts)
}

func TestExec(t *testing.T) {
	i, _ := compileConf(t, false, `conf:
  exec:
    B: {data: "#!/bin/sh\n", args: [1, on, 0640], env: {N: 2000000}, rerun_interval: 3600, timeout: 5}
    a: {data: "echo\n", rerun_policy: once_successfully, retry_interval: 60, once: per-machine, revert: undo}
    10.sh: {data: "#!/x", rerun_interval: infinity, blocking_policy: background, rerun_max_count: 3, rerun_interval_persist: false}
    9.sh: {data: "#!/x", rerun_policy: never, script_timeout: 7, retry_interval: infinite, retry_interval_persist: false, retry_max_count: 2}
`)
	diff(t, "exec", []spec.Exec{ // in byte order of names
		{Name: "10.sh", Data: "#!/x", RerunInterval: -1, RetryInterval: -1, Blocking: "background", RerunMax: 3, RerunForget: true},
		{Name: "9.sh", Data: "#!/x", Rerun: "never", Timeout: 7, RetryInterval: -1, RetryForget: true, RetryMax: 2},
		{Name: "B", Data: "#!/bin/sh\n", Args: []string{"1", "on", "0640"}, Env: map[string]string{"N": "2000000"}, RerunInterval: 3600, RetryInterval: 3600, Timeout: 5},
		{Name: "a", Data: "#!/bin/bash\necho\n", Rerun: "once_successfully", RetryInterval: 60, Once: "per-machine", Revert: "#!/bin/bash\nundo"},
	}, i.Exec)
}

func TestPerm(t *testing.T) {
	const conf = `conf:
  perm:
    rerun_interval: 300
    ignore_missing: true
    paths:
    - {path: /etc/motd, permissions: 0640}
    - {path: /var/log/x, owner: 0, group: adm, permissions: u=rw}
    - {path: /*/x, owner: root}
    - {path: /usr/bin/*, permissions: 4755}
    - {path: /etcetera, owner: root}
    - {path: /srv/a /srv/b, owner: root}
`
	motd, log := spec.PermPath{Path: "/etc/motd", Mode: "0640"}, spec.PermPath{Path: "/var/log/x", Owner: "0", Group: "adm", Mode: "u=rw"}
	star, bin, etc := spec.PermPath{Path: "/*/x", Owner: "root"}, spec.PermPath{Path: "/usr/bin/*", Mode: "4755"}, spec.PermPath{Path: "/etcetera", Owner: "root"}
	a, b := spec.PermPath{Path: "/srv/a", Owner: "root"}, spec.PermPath{Path: "/srv/b", Owner: "root"}
	i, r := compileConf(t, true, conf)
	diff(t, "on the node", &spec.Perm{Paths: []spec.PermPath{log, star, etc, a, b}, Interval: 300, IgnoreMissing: true}, i.Perm)
	diff(t, "in the layer", &spec.Perm{Paths: []spec.PermPath{motd, bin}, IgnoreMissing: true}, r.Perm)
	i, _ = compileConf(t, false, conf)
	diff(t, "without a layer", &spec.Perm{Paths: []spec.PermPath{motd, log, star, bin, etc, a, b}, Interval: 300, IgnoreMissing: true}, i.Perm)
	for _, older := range []string{"conf: {perm: [{path: /srv, owner: root}]}\n", "conf: {perms: [{path: /srv, owner: root}]}\n"} {
		i, _ = compileConf(t, false, older)
		diff(t, older, &spec.Perm{Paths: []spec.PermPath{{Path: "/srv", Owner: "root"}}}, i.Perm)
	}
}

func TestApt(t *testing.T) {
	_, r := compileConf(t, true, `conf:
  apt:
    packages:
      b: [{name: zsh, version: 5.9-1}, {name: jq}]
      a: [{name: curl, debconf: [{question: q, question_type: boolean, answer: on}]}]
    whitelistpkgs: [bb, aa, bb]
    repositories:
      z: {url: 'https://z.example.org', distributions: [s], components: [main], subrepos: , gpgkey: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"}
      y: {url: 'https://y.example.org', distributions: [s, t], components: [main, contrib], subrepos: [updates]}
    upgrade: yes
`)
	diff(t, "packages", spec.Packages{
		Install:   []spec.Package{{Name: "curl", Debconf: []spec.Debconf{{Question: "q", Type: "boolean", Answer: "on"}}}, {Name: "jq"}, {Name: "zsh", Version: "5.9-1"}},
		Blacklist: []string{"inetutils-telnetd", "nis", "ntpdate", "telnetd", "telnetd-ssl"}, Whitelist: []string{"aa", "bb"}, Upgrade: true,
		Repositories: []spec.Repository{
			{ID: "y", URL: "https://y.example.org", Distributions: []string{"s", "t"}, Components: []string{"main", "contrib"}, Subrepos: []string{"updates"}},
			{ID: "z", URL: "https://z.example.org", Distributions: []string{"s"}, Components: []string{"main"}, Key: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"},
		},
	}, r.Packages)
	_, r = compileConf(t, true, "conf: {apt: {blacklistpkgs: [], packages: [{name: telnetd}]}}\n")
	diff(t, "no blacklist", spec.Packages{Install: []spec.Package{{Name: "telnetd"}}}, r.Packages)
}

// Absent keys empty the file; [Unmanaged] and [] leave it; and what one user has
// never reaches the next: Divingbell passed sudo and password on.
func TestUsers(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICPETahEyllxaSmseT2t1YryzVztAMi7gzpQv6maqmbh"
	hash := "$6$saltsalt$" + strings.Repeat("a", 86)
	_, r := compileConf(t, true, `conf:
  uamlite:
    purge_expired_users: 'yes'
    users:
    - {user_name: alice, user_sudo: on, user_crypt_passwd: `+hash+`, user_sshkeys: [Unmanaged]}
    - {user_name: bob}
    - {user_name: carol, user_sshkeys: []}
    - {user_name: first.last, user_sshkeys: [' `+key+` '], user_uid: 2000, user_groups: [adm], user_shell: /bin/sh, user_sudo: no}
`)
	diff(t, "accounts", spec.Accounts{PurgeExpired: true, Users: []spec.User{
		{Name: "alice", Sudo: true, Password: hash},
		{Name: "bob", Keys: []string{}},
		{Name: "carol"},
		{Name: "first.last", Keys: []string{key}, UID: 2000, Groups: []string{"adm"}, Shell: "/bin/sh"},
	}}, r.Accounts)
}

func TestEthtool(t *testing.T) {
	i, _ := compileConf(t, false, "conf: {ethtool: {eth1: {gro: Yes}, eth0: {tx-tcp-segmentation: \"off\", rx-gro: true}}}\n")
	diff(t, "ethtool", []spec.Feature{
		{Interface: "eth0", Feature: "generic-receive-offload", On: true},
		{Interface: "eth0", Feature: "tx-tcp-segmentation"},
		{Interface: "eth1", Feature: "generic-receive-offload", On: true},
	}, i.Ethtool)
}

// A profile's text is not touched: no escapes, no trailing blanks lost.
func TestAppArmor(t *testing.T) {
	_, r := compileConf(t, true, "conf:\n  apparmor:\n    complain_mode: true\n    profiles:\n      z: \"profile z { # \\\\x41\\\\n\\n}\\n \"\n      a: |\n        /usr/bin/a {\n        }\n")
	diff(t, "apparmor", spec.AppArmor{Complain: true, Profiles: []spec.Profile{
		{File: "a", Text: "/usr/bin/a {\n}\n"}, {File: "z", Text: "profile z { # \\x41\\n\n}\n "},
	}}, r.AppArmor)
}

// A password that is a secret is in the node's overlay and in no layer: the recipe is that of an
// account without one.
func TestPasswordsThatAreSecrets(t *testing.T) {
	const secrets = "secrets: {pw: {command: [cat, pw]}}\n"
	with, recipe := compileConf(t, true, secrets+"conf: {uamlite: {users: [{user_name: bob, user_crypt_passwd: {secret: pw}}, {user_name: ann, user_crypt_passwd: {secret: pw}}]}}\n")
	diff(t, "passwords", []spec.Password{{User: "ann", Secret: "pw"}, {User: "bob", Secret: "pw"}}, with.Passwords)
	without, same := compileConf(t, true, "conf: {uamlite: {users: [{user_name: bob}, {user_name: ann}]}}\n")
	diff(t, "recipe", same, recipe)
	if without.Passwords != nil {
		t.Errorf("%+v", without.Passwords)
	}
	attached, _ := compileConf(t, false, secrets+"attached: true\nconf: {uamlite: {users: [{user_name: ann, user_crypt_passwd: {secret: pw}}]}}\n")
	if attached.Passwords != nil {
		t.Errorf("an attached host, which keeps its accounts, is sent %+v", attached.Passwords)
	}
}
