// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongDocumentation: a site that asks for it has what there is to read, of the base and of a package.
func TestLongDocumentation(t *testing.T) {
	require.Long(t)
	o, r := testOptions(t), testRecipe()
	r.Base.Debian.Documentation = true
	o.Ledger, _ = Settle([]spec.Recipe{r}, nil)
	b := &build{options: o, recipe: r, done: map[string]made{}, checked: map[string]bool{}}
	release, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := b.resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps[:2] {
		if err := b.step(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for name, step := range map[string]string{"man/man8/apt-get.8.gz": stepBase, "doc/apt/changelog.gz": stepBase, "locale/de/LC_MESSAGES/dpkg.mo": stepBase, "man/man1/tree.1.gz": stepPackages} {
		if at := filepath.Join(b.done[step].dir, "tree/usr/share", name); !exists(at) {
			t.Errorf("%s is left out", at)
		}
	}
}

// TestLongDebianOnNodes builds what an administrator of Debian takes for granted: answers for a
// package of the base, a mailer whose script wants an address, and no timers or dpkg that a
// read-only /usr leaves half done.
func TestLongDebianOnNodes(t *testing.T) {
	require.Long(t)
	o := testOptions(t)
	said := ""
	o.Progress = func(e Event) { said += e.Text + "\n" }
	r := testRecipe()
	answer := func(name string, lines ...spec.Debconf) spec.Package {
		return spec.Package{Name: name, Debconf: lines}
	}
	r.Packages.Install = []spec.Package{
		answer("openssh-server", spec.Debconf{Question: "openssh-server/password-authentication", Type: "boolean", Answer: "false"}),
		answer("postfix", spec.Debconf{Question: "postfix/main_mailer_type", Type: "select", Answer: "Local only"}, spec.Debconf{Question: "postfix/mailname", Type: "string", Answer: "node.example.org"}),
		answer("man-db"), answer("unattended-upgrades"), answer("unbound"), answer("tree"),
	}
	o.Ledger, _ = Settle([]spec.Recipe{r}, nil)
	b := &build{options: o, recipe: r, done: map[string]made{}, checked: map[string]bool{}}
	release, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := b.resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range steps[:2] {
		if err := b.step(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	tree := func(step, name string) string { return filepath.Join(b.done[step].dir, "tree", name) }
	sshd, err := os.ReadFile(tree(stepBase, "etc/ssh/sshd_config"))
	if err != nil || !strings.Contains(string(sshd), "\nPasswordAuthentication no\n") {
		t.Errorf("the answer for sshd has come late: %v\n%s", err, sshd)
	}
	for _, name := range []string{"apt-daily", "apt-daily-upgrade", "man-db", "dpkg-db-backup"} {
		for _, step := range []string{stepBase, stepPackages} {
			if at := tree(step, "etc/systemd/system/timers.target.wants/"+name+".timer"); exists(at) {
				t.Errorf("%s is enabled", at)
			}
		}
	}
	if !exists(tree(stepPackages, "usr/sbin/postfix")) || !strings.Contains(said, "unbound: dns-root-data") || !strings.Contains(said, "little to read for man-db") {
		t.Errorf("said: %s", said)
	}
	node := &root.Root{Lowers: []string{tree(stepPackages, ""), tree(stepBase, "")}, Upper: t.TempDir(), Work: t.TempDir()}
	for script, want := range map[string]string{
		"test $(cat /sys/class/net/lo/flags) = 0x9":                              "",
		"dpkg --configure -a":                                                    "",
		"sed 's/-w/-c/' -i /etc/dpkg/dpkg.cfg.d/90-caisson; dpkg --configure -a": "come with its layer", // as where /usr takes no writes
	} {
		err := node.Run(t.Context(), root.Command{Args: []string{"/bin/sh", "-c", script}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.(*root.ExitError).Output, want)) {
			t.Errorf("%s: %v", script, err)
		}
	}
}
