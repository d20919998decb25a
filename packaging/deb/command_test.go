// SPDX-License-Identifier: Apache-2.0

package deb

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/debroot"
	"github.com/caisson-os/caisson/test/require"
)

// makeCommandPackage makes the package of the command line, of a program that says its
// version, and returns its file.
func makeCommandPackage(t *testing.T, version string) string {
	t.Helper()
	require.Net(t) // nfpm is fetched once
	require.Tool(t, "dpkg-deb", "gzip")
	dir, out := t.TempDir(), t.TempDir()
	files := map[string]string{
		"caisson":                                "#!/bin/sh\necho caisson " + version + "\n",
		"man/man1/caisson.1":                     ".TH CAISSON 1\n",
		"bash-completion/completions/caisson":    "#\n",
		"zsh/site-functions/_caisson":            "#\n",
		"fish/vendor_completions.d/caisson.fish": "#\n",
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := run(t.Context(), "env", "NAME=caisson", "SHARE="+dir, "../hack/deb", dir+"/caisson", "amd64", version, "2026-11-21T12:00:00Z", out); err != nil {
		t.Fatal(said)
	}
	debs, err := filepath.Glob(out + "/*.deb")
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	return debs[0]
}

// The command line puts the agent of its own version into layers.
func TestCommandPackage(t *testing.T) {
	fields, err := run(t.Context(), "dpkg-deb", "--field", makeCommandPackage(t, "v1.2.3-rc1"), "Version", "Recommends")
	if err != nil || !strings.Contains(fields, "Version: 1.2.3~rc1\n") || !strings.Contains(fields, "caisson-agent (= 1.2.3~rc1),") {
		t.Errorf("%v\n%s", err, fields)
	}
}

// The command line installs, upgrades and is removed, and its service with it: it starts
// nothing, makes the service's account, and leaves what the service knows.
func TestCommandPackageOnDebian(t *testing.T) {
	require.Root(t)
	before, after := makeCommandPackage(t, "v1.0.0"), makeCommandPackage(t, "v1.1.0")
	for _, release := range debroot.Releases {
		t.Run(release, func(t *testing.T) {
			r := debroot.New(t, release)
			r.Put(before, "root/before.deb")
			r.Put(after, "root/after.deb")
			r.Must(`mkdir -p /run/systemd/system /usr/local/sbin; printf '#!/bin/sh\necho "$*" >>/run/asked\n' >/usr/local/sbin/systemctl; chmod 755 /usr/local/sbin/systemctl`)
			asked := func() string { return strings.TrimSpace(r.Must(`cat /run/asked 2>/dev/null; rm -f /run/asked`)) }
			const list = `find / -xdev -path /proc -prune -o -path /var/lib/dpkg -prune -o -path /var/log -prune -o -path /run -prune -o -path /etc -prune -o -printf '%p %y %m %u %l\n' | sort`
			clean := r.Must(list)

			r.Must(`dpkg --install /root/before.deb`)
			if got := asked(); got != "daemon-reload" {
				t.Errorf("an installation asks systemd for %q", got)
			}
			if got := r.Must(`caisson version; getent passwd caisson-fleet; /usr/bin/systemctl --root=/ is-enabled caisson-fleet.service || true`); !regexp.MustCompile(`(?s)v1\.0\.0.*caisson-fleet:.*disabled`).MatchString(got) {
				t.Error(got)
			}
			if got, ok := r.Run(`systemd-analyze verify --man=no /usr/lib/systemd/system/caisson-fleet.service 2>&1`); !ok || strings.Contains(got, "caisson-fleet") {
				t.Errorf("the unit: %s", got)
			}
			r.Must(`mkdir -p /etc/caisson-fleet /var/lib/caisson-fleet; echo OPTIONS=--kept >/etc/caisson-fleet/options; echo kept >/var/lib/caisson-fleet/fleet.db`)

			r.Must(`dpkg --install /root/after.deb`)
			if got := asked(); got != "daemon-reload\n--no-block try-restart caisson-fleet.service" {
				t.Errorf("an upgrade asks systemd for %q", got)
			}
			r.Must(`dpkg --remove caisson`)
			if got := asked(); got != "stop caisson-fleet.service\ndaemon-reload" {
				t.Errorf("a removal asks systemd for %q", got)
			}
			r.Must(`dpkg --install /root/after.deb && caisson version && dpkg --purge caisson`)
			if got := r.Must(`cat /etc/caisson-fleet/options /var/lib/caisson-fleet/fleet.db`); got != "OPTIONS=--kept\nkept\n" {
				t.Errorf("a purge takes what is the service's: %s", got)
			}
			if got := r.Must(`rm -r /etc/caisson-fleet /var/lib/caisson-fleet; ` + list); got != clean {
				t.Errorf("a purge leaves:\n%s", difference(clean, got))
			}
		})
	}
}
