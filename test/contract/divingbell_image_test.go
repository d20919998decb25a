// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"io/fs"
	"os"
	"strings"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apparmor"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/packages"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/roottest"
)

// What a layer gets: the steps of a build on small trees.

func (p *probe) read(r *root.Root, name string) string {
	p.Helper()
	text, err := r.ReadFile(name)
	p.must(err)
	return string(text)
}

// bakedMode is the row's part of setuidModes that is a layer's.
func bakedMode(p *probe) {
	r := roottest.New(p.T, map[string]string{"usr/bin/tool": "#!/bin/sh\n", "opt/shared/x": ""})
	recipe := p.recipe(baked + "conf: {perm: {paths: [{path: /usr/bin/tool, permissions: '4755'}, {path: /opt/shared, permissions: '1777'}]}}\n")
	p.must(builder.Check(recipe))
	p.must(accounts.BakePerm(p.Context(), r, *recipe.Perm))
	for name, want := range map[string]fs.FileMode{"/usr/bin/tool": 0o755 | fs.ModeSetuid, "/opt/shared": 0o777 | fs.ModeSticky | fs.ModeDir} {
		info, err := r.Lstat(name)
		p.must(err)
		p.equal("mode of "+name+" in the layer", want, info.Mode())
	}
}

func listedKeysOnly(p *probe) {
	r := roottest.New(p.T, map[string]string{"usr/bin/systemctl": "#!/bin/sh\n", "etc/ssh/sshd_config.d/50-base.conf": "AuthorizedKeysFile .ssh/authorized_keys\n"})
	p.must(base.Configure(p.Context(), r))
	files, err := r.ReadDir("/etc/ssh/sshd_config.d")
	p.must(err)
	first := p.read(r, "/etc/ssh/sshd_config.d/"+files[0]) // of two values sshd takes the first
	p.contains("what sshd reads", first, "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u")
	p.holds("what sshd reads", !strings.Contains(first, ".ssh/"), "%s", first)

	r = people(p)
	bake(p, r, "[{user_name: ann, user_sshkeys: ['"+key+"']}, {user_name: ben, user_sshkeys: [Unmanaged]}]")
	p.equal("keys of ann", key+"\n", p.read(r, "/etc/ssh/authorized_keys.d/ann"))
	exception := p.read(r, "/etc/ssh/sshd_config.d/01-caisson-unmanaged.conf")
	p.contains("who has keys at home", exception, "Match User ben\n")
	p.documented("divingbell.md", "a list is all: keys in the home are not read")
}

// people is a tree with the accounts of a distribution.
func people(p *probe) *root.Root {
	p.Helper()
	return roottest.New(p.T, map[string]string{
		"etc/passwd":  "root:x:0:0:root:/root:/bin/sh\nubuntu:x:1005:1005::/home/ubuntu:/bin/bash\n",
		"etc/group":   "root:x:0:\nshadow:x:42:\nubuntu:x:1005:\n",
		"etc/shadow":  "root:*:20000:0:99999:7:::\nubuntu:!:20000:0:99999:7:::\n",
		"etc/gshadow": "root:*::\n",
	})
}

// bake gives the tree the users that a values file has.
func bake(p *probe, r *root.Root, users string, left ...spec.Account) {
	p.Helper()
	a := p.recipe(baked + "conf: {uamlite: {users: " + users + "}}\n").Accounts
	fleet, err := accounts.Settle([]spec.Accounts{a}, left)
	p.must(err)
	_, err = accounts.Bake(p.Context(), r, a, fleet, 20000*86400)
	p.must(err)
}

// field is a field of a name's row.
func field(p *probe, r *root.Root, file, name string, n int) string {
	p.Helper()
	for line := range strings.Lines(p.read(r, file)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); f[0] == name {
			return f[n]
		}
	}
	p.Fatalf("%s has no %s", file, name)
	return ""
}

const hash = "$6$salt$XvCmFkFCGIUa0FJwCVGZ8EhYvZxZAjoCDQWmJN5fN7KbUyUMYqn/cLxhXhLXhHyG8XcCnAKJ6nmhNSzpXXcOB/"

func builtinByVotes(p *probe) {
	r := people(p)
	bake(p, r, "[{user_name: ann, user_sudo: true, user_sshkeys: ['"+key+"']}, {user_name: ben, user_sudo: true, user_crypt_passwd: '"+hash+"', user_sshkeys: [Unmanaged]}]")
	p.equal("ubuntu's expiry, with a password and keys of two users", "1", field(p, r, "/etc/shadow", "ubuntu", 7))
	p.documented("divingbell.md", "absent: `ubuntu`, by Divingbell's two votes")
}

func builtinStays(p *probe) {
	r := people(p)
	bake(p, r, "[{user_name: ann, user_sudo: true, user_sshkeys: ['"+key+"']}]")
	p.equal("ubuntu's expiry, with keys alone", "", field(p, r, "/etc/shadow", "ubuntu", 7))
}

func numberOfBase(p *probe) {
	of := accounts.PeopleIn("root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n")
	rows, err := builder.Settle([]spec.Recipe{p.recipe(baked + "conf: {uamlite: {users: [{user_name: ann, user_sshkeys: [Unmanaged]}]}}\n")}, builder.Reserve(nil, of))
	p.must(err)
	got := map[string]int{}
	for _, row := range rows {
		got[row.Name] = row.UID
	}
	p.equal("numbers", map[string]int{"ubuntu": 1000, "ann": 1001}, got)
}

func accountOfPackage(p *probe) {
	r := people(p)
	bake(p, r, "[]", spec.Account{Name: "ubuntu", UID: 1005, GID: 1005, State: "active"}, spec.Account{Name: "gone", UID: 1006, GID: 1006, State: "active"})
	p.equal("the package's account", "/bin/bash", field(p, r, "/etc/passwd", "ubuntu", 6))
	p.equal("a user who left", "/usr/sbin/nologin", field(p, r, "/etc/passwd", "gone", 6))
}

// parser stands for apparmor_parser(8): it compiles anything to nothing.
const parser = "#!/bin/sh\nfor a; do case $a in --ofile=*) out=${a#--ofile=};; esac; done\nmkdir -p ${out%/*}; : >$out\n"

func profileOfPackage(p *probe) {
	r := roottest.New(p.T, map[string]string{"etc/apparmor.d/usr.bin.x": "profile x { }\n"})
	a := p.recipe(baked + "conf: {apparmor: {profiles: {usr.bin.x: 'profile x { }', mine: 'profile mine { }'}}}\n").AppArmor
	p.equal("profiles that take a package's place", []string{"usr.bin.x"}, apparmor.Replaced(r, a))
	p.documented("divingbell.md", "a file that a package has, too, takes its place, and the build says so (Divingbell refused)")
}

func fileOfVariables(p *probe) {
	r := roottest.New(p.T, map[string]string{"etc/apparmor.d/README": "", "usr/sbin/apparmor_parser": parser})
	a := p.recipe(baked + "conf: {apparmor: {profiles: {vars: \"@{HERE} = /opt\\n\"}}}\n").AppArmor
	policy, err := apparmor.Bake(p.Context(), r, a, apparmor.Features("file {}\n"))
	p.must(err)
	p.equal("profiles in it", 0, len(policy.Profiles))
	p.equal("its text", "@{HERE} = /opt\n", p.read(r, "/etc/apparmor.d/vars"))
}

func failingPostinst(p *probe) {
	// The tree's apt-get is one whose dpkg has a script that fails.
	r := roottest.New(p.T, map[string]string{"etc/apt/apt.conf.d/70debconf": "", "usr/bin/apt-get": "#!/bin/sh\necho 'Setting up app (1) ...'\necho no database\n" +
		"echo 'dpkg: error processing package app (--configure):'\necho ' installed app package post-installation script subprocess returned error exit status 7'\nexit 100\n"})
	err := packages.Install(p.Context(), r, spec.Packages{Install: []spec.Package{{Name: "app"}}}, nil, packages.Locked{Repo: p.TempDir()})
	if err == nil {
		p.Fatal("it installs")
	}
	p.contains("the error", err.Error(), `it said "no database"`, "exit status 7")
}

func twoEntries(p *probe) {
	entries := func(second string) string {
		return "conf:\n  apt:\n    repositories:\n      a: {url: 'https://apt.example.org/x', distributions: [d], components: [main], gpgkey: \"" + armoured("a") + "\"}\n" +
			"      b: {url: 'https://apt.example.org/x', distributions: [d], components: [extra], gpgkey: \"" + armoured(second) + "\"}\n"
	}
	own := p.recipe(baked + entries("a")).Packages.Repositories
	p.must(apt.Check(nil, own))
	archives, err := apt.Repositories(own, p.TempDir())
	p.must(err)
	p.equal("keyrings of one key", archives[0].Keyring, archives[1].Keyring)
	s, said := p.parse("site.yaml", baked+entries("b"))
	if s != nil {
		err := apt.Check(nil, p.recipe(baked+entries("b")).Packages.Repositories)
		p.holds("two keys", err != nil && strings.Contains(err.Error(), "has two keys"), "%v\n%s", err, said)
	} else {
		p.contains("two keys", said, "two keys")
	}
	p.documented("divingbell.md", "one distribution of one URL may stand in two entries with one key, with two keys it is an error")
}

func armoured(text string) string {
	return `-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n` + text + `\n-----END PGP PUBLIC KEY BLOCK-----\n`
}

// stat is a file's mode as chmod(1) has it.
func stat(p *probe, name string) uint32 {
	p.Helper()
	info, err := os.Lstat(name)
	p.must(err)
	mode := uint32(info.Mode().Perm())
	for bit, word := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if info.Mode()&bit != 0 {
			mode |= word
		}
	}
	return mode
}
