// SPDX-License-Identifier: Apache-2.0

package base

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/test/roottest"
)

// Keys are read from the layer alone, whatever a base says; units are enabled; no
// identity is in it.
func TestConfigure(t *testing.T) {
	r := roottest.New(t, map[string]string{
		"usr/bin/systemctl":                  "#!/bin/sh\necho \"$@\" >/enabled\n",
		"etc/machine-id":                     "0123456789abcdef0123456789abcdef\n",
		"etc/ssh/sshd_config.d/50-base.conf": "AuthorizedKeysFile .ssh/authorized_keys\n",
		"etc/resolv.conf":                    "nameserver 192.0.2.1\n",
	})
	if err := Configure(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	first, err := r.ReadDir("/etc/ssh/sshd_config.d")
	if err != nil || len(first) < 2 || filepath.Join("/etc/ssh/sshd_config.d", first[0]) != sshdFile {
		t.Errorf("sshd takes the first of %v, %v", first, err)
	}
	for name, want := range map[string]string{sshdFile: "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n", "/enabled": "systemd-networkd.service systemd-resolved.service"} {
		if got, err := r.ReadFile(name); err != nil || !strings.Contains(string(got), want) || strings.Contains(string(got), ".ssh/") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := r.ReadFile("/etc/machine-id"); err != nil || len(got) != 0 {
		t.Errorf("machine-id %q, %v", got, err)
	}
	if info, err := r.Lstat("/etc/resolv.conf"); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("resolv.conf is %v, %v: it must follow systemd-resolved", info, err)
	}
	failing := roottest.New(t, map[string]string{"usr/bin/systemctl": "#!/bin/sh\necho no such unit >&2\nexit 1\n"})
	if err := Configure(t.Context(), failing); err == nil || !strings.Contains(err.Error(), "no such unit") {
		t.Errorf("a unit that cannot be enabled: %v", err)
	}
}

// Sessions speak UTF-8 where a package has left a link to nowhere, and what a base says stays.
func TestLocale(t *testing.T) {
	for _, own := range []string{"", "/etc/default/locale", "/etc/locale.conf"} {
		r, want := roottest.New(t, map[string]string{"etc/default/nss": ""}), "LANG=de_DE.UTF-8\n"
		if err := r.Symlink("../locale.conf", "/etc/default/locale"); err != nil {
			t.Fatal(err)
		}
		if own == "" {
			own, want = "/etc/locale.conf", "LANG=C.UTF-8\n"
		} else if err := r.WriteFile(own, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := setLocale(r); err != nil {
			t.Error(err)
		}
		if got, err := r.ReadFile(own); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", own, got, err, want)
		}
		if _, err := os.Stat(filepath.Join(r.Upper, "etc/default/locale")); err != nil {
			t.Errorf("%s: sessions do not find it: %v", own, err)
		}
	}
}

// What a node must not share and what differs each time goes; the rest stays.
func TestScrub(t *testing.T) {
	tree := t.TempDir()
	gone := []string{"etc/hostname", "etc/ssh/ssh_host_ed25519_key", "etc/passwd-", "var/log/dpkg.log", "var/log/apt/history.log", "var/lib/apt/lists/x_Packages",
		"var/lib/systemd/random-seed", "tmp/.x/y", "run/z", "usr/sbin/policy-rc.d", "var/cache/apt/archives/a.deb", "etc/mysql/debian.cnf"}
	stay := []string{"etc/passwd", "etc/ssh/sshd_config", "var/log/journal.keep", "var/lib/apt/extended_states", "usr/sbin/x"}
	programs := map[string]string{} // without which databases stay
	for _, row := range perhost.Table {
		if row.Program != "" {
			programs[row.Program[1:]] = "x"
		}
		if row.Text == nil {
			for _, pattern := range row.Patterns {
				gone = append(gone, strings.ReplaceAll(pattern, "*", "x"))
			}
		}
	}
	roottest.Put(t, tree, programs)
	for _, name := range append(append([]string{}, gone...), stay...) {
		roottest.Put(t, tree, map[string]string{name: "x"})
	}
	if err := Scrub(tree); err != nil {
		t.Fatal(err)
	}
	for _, name := range gone {
		if _, err := os.Lstat(filepath.Join(tree, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range stay {
		if _, err := os.Lstat(filepath.Join(tree, name)); err != nil {
			t.Error(err)
		}
	}
}

// Of what names the build's host that part goes, and nothing that the site said; databases of
// a server that nothing here makes stay.
func TestScrubNames(t *testing.T) {
	for _, test := range []struct{ name, was, want string }{
		{"etc/mysql/debian.cnf", "x", "x"},
		{"etc/mailname", "localhost\n", "-"},
		{"etc/mailname", "mail.example.org\n", "mail.example.org\n"},
		{"etc/postfix/main.cf", "a = b\nmyhostname = localhost.UNKNOWN\nc = d\n", "a = b\nc = d\n"},
		{"etc/postfix/main.cf", "myhostname = mail.example.org\n", "myhostname = mail.example.org\n"},
		{"var/lib/mysql/ibdata1", "x", "x"},
	} {
		tree := t.TempDir()
		roottest.Put(t, tree, map[string]string{test.name: test.was})
		if err := Scrub(tree); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(tree, test.name))
		if err != nil {
			got = []byte("-")
		}
		if string(got) != test.want {
			t.Errorf("%s with %q is %q", test.name, test.was, got)
		}
	}
}

// TestMakeCluster runs what makes a cluster, with programs that fail once: what was cut is made
// again from nothing, what is whole stays, and so does what somebody else put there.
func TestMakeCluster(t *testing.T) {
	const begin = "set -e\ntest -e /data/.caisson-unfinished\n"
	r := roottest.New(t, map[string]string{
		"etc/passwd":                             "root:x:0:0::/:/bin/sh\nmysql:x:1:1::/:\npostgres:x:1:1::/:\n",
		"etc/group":                              "root:x:0:\nmysql:x:1:\npostgres:x:1:\n",
		"usr/lib/systemd/system/mariadb.service": "",
		"usr/lib/systemd/system/postgresql@.service": "",
		"usr/bin/my_print_defaults":                  "#!/bin/sh\necho --datadir=/data\n",
		"usr/bin/mariadb-install-db":                 "#!/bin/sh\n" + begin + "test ! -e /data/whole\necho x >/data/whole\ntest -e /second\n",
		"usr/bin/pg_conftool":                        "#!/bin/sh\ntest \"$*\" = '-s 17 main show data_directory'\necho /data\n",
		"usr/bin/pg_createcluster": "#!/bin/sh\n" + begin + "test ! -e /data/new\ntest \"$PG_CLUSTER_CONF_ROOT\" = /run/x\n" +
			"test \"$*\" = '--quiet --datadir /data/new 17 main'\nmkdir /data/new\necho x >/data/new/whole\ntest -e /second\n",
		"data/lost+found/x": "x",
	})
	if err := Bake(r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"mariadb.service": "Requires=caisson-cluster@mysql.service\n", "postgresql@.service": "Requires=caisson-cluster@postgresql-%i.service\n"} {
		if got, err := r.ReadFile("/usr/lib/systemd/system/" + name + ".d/10-caisson-cluster.conf"); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	sh := func(script string) error {
		return r.Run(t.Context(), root.Command{Args: []string{"/bin/sh", "-c", script}})
	}
	for _, cluster := range []string{"mysql", "postgresql/17/main"} {
		make := "RUNTIME_DIRECTORY=/run/x /usr/lib/caisson/make-cluster " + cluster
		if err := sh("rm -f /second /data/whole; " + make); err == nil {
			t.Errorf("%s: its program failed, and nothing is said", cluster)
		}
		const whole = " && test ! -e /data/.caisson-unfinished && test -e /data/whole && test -e /data/lost+found/x"
		if err := sh("echo >/second; " + make + whole + " && rm /second && echo mine >/data/whole && " + make + whole + " && grep mine /data/whole"); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
		if err := sh("mv /data/whole /data/mine; " + make + " && test ! -e /data/whole; code=$?; rm /data/mine; exit $code"); err != nil {
			t.Errorf("%s is made in a directory that is not empty: %v", cluster, err)
		}
	}
}

// A package may put a link in the place of a directory. What is removed lies in the tree.
func TestLinksOutOfTheTree(t *testing.T) {
	for name, patterns := range map[string][]string{"a link": {"etc/ssh/*", "etc/ssh/kept", "etc/ssh/kept/*"}, "a relative link": {"up/*/file", "up/kept/*", "up/*"}} {
		t.Run(name, func(t *testing.T) {
			both := t.TempDir()
			outside, tree := filepath.Join(both, "outside"), filepath.Join(both, "tree")
			kept := filepath.Join(outside, "kept/file")
			for _, dir := range []string{filepath.Dir(kept), filepath.Join(tree, "etc")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for link, to := range map[string]string{"etc/ssh": outside, "linked": kept, "up": "../outside"} {
				if err := os.Symlink(to, filepath.Join(tree, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(kept, []byte("host"), 0o644); err != nil {
				t.Fatal(err)
			}
			top, err := os.OpenRoot(tree)
			if err != nil {
				t.Fatal(err)
			}
			defer top.Close() // only read
			t.Log(removeGlob(top, patterns))
			if data, err := os.ReadFile(kept); err != nil || string(data) != "host" {
				t.Errorf("the host has now %q, %v", data, err)
			}
		})
	}
}

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}
