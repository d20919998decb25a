// SPDX-License-Identifier: Apache-2.0

// Package deb holds what the agent's Debian package is made of; packaging/hack/deb makes it.
package deb

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/debroot"
	"github.com/caisson-os/caisson/test/require"
)

// makePackages runs make deb for a version and returns the directory with its packages. Its programs
// do not say whether the tree is that of a commit: somebody may write in it between two runs.
func makePackages(t *testing.T, version, arches string) string {
	t.Helper()
	require.Net(t) // nfpm is fetched once
	require.Tool(t, "make", "dpkg-deb", "gzip")
	out := t.TempDir()
	if said, err := run(t.Context(), "env", "GOFLAGS=-buildvcs=false", "make", "-s", "-C", "../..", "deb", "ARCHES="+arches, "OUT="+out, "VERSION="+version, "BUILT=2026-11-21T12:00:00Z"); err != nil {
		if strings.Contains(said, "dial tcp") {
			require.Missing(t, "net", said)
		}
		t.Fatal(said)
	}
	return out
}

func run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}

// The same commit makes the same bytes, for both machines, with what belongs in.
func TestPackage(t *testing.T) {
	const arches = "amd64 arm64"
	one, two := makePackages(t, "v1.2.3-rc1", arches), makePackages(t, "v1.2.3-rc1", arches)
	for _, arch := range strings.Fields(arches) {
		name := "caisson-agent_1.2.3~rc1_" + arch + ".deb"
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(two, name))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: two runs, two results (%v)", name, err)
		}
		fields, err := run(t.Context(), "dpkg-deb", "--field", filepath.Join(one, name), "Package", "Version", "Architecture", "Depends")
		if want := "Package: caisson-agent\nVersion: 1.2.3~rc1\nArchitecture: " + arch + "\n"; err != nil || fields != want {
			t.Errorf("%v\n%s", err, fields)
		}
		list, err := run(t.Context(), "dpkg-deb", "--contents", filepath.Join(one, name))
		if err != nil {
			t.Fatal(list)
		}
		for _, want := range []string{
			`-rwxr-xr-x root/root .* \./usr/lib/caisson/caisson-agent\n`, `\./usr/bin/caisson-agent -> \.\./lib/caisson/caisson-agent\n`,
			`-rw-r--r-- root/root .* \./usr/lib/systemd/system/caisson-agent\.service\n`, `\./usr/share/man/man8/caisson-agent\.8\.gz\n`,
			`\./usr/share/bash-completion/completions/caisson-agent\n`, `\./usr/share/doc/caisson-agent/examples/site\.json\n`,
			`drwxr-xr-x root/root .* \./etc/caisson/\n`,
		} {
			if !regexp.MustCompile(want).MatchString(list) {
				t.Errorf("%s: no line matches %s:\n%s", arch, want, list)
			}
		}
	}
	arm := filepath.Join(one, "arm64")
	if said, err := run(t.Context(), "dpkg-deb", "--extract", filepath.Join(one, "caisson-agent_1.2.3~rc1_arm64.deb"), arm); err != nil {
		t.Fatal(said)
	}
	require.Tool(t, "qemu-aarch64-static")
	said, err := run(t.Context(), "qemu-aarch64-static", filepath.Join(arm, "usr/bin/../lib/caisson/caisson-agent"), "version")
	if err != nil || !strings.HasPrefix(said, "caisson-agent v1.2.3-rc1 (") {
		t.Errorf("on arm64: %v, %s", err, said)
	}
	onDebian(t, filepath.Join(one, "caisson-agent_1.2.3~rc1_amd64.deb"))
}

// Versions of git describe come in the order of their commits.
func TestVersions(t *testing.T) {
	require.Net(t) // nfpm is fetched once
	require.Tool(t, "dpkg", "dpkg-deb", "gzip")
	var last string
	for _, describe := range []string{"fa08c33", "v1.2.3-rc1", "v1.2.3-rc1-7-gabcdef0", "v1.2.3", "v1.2.3-45-gabcdef0", "v1.3.0"} {
		out := t.TempDir()
		if said, err := run(t.Context(), "../hack/deb", "/bin/true", "amd64", describe, "2026-11-21T12:00:00Z", out); err != nil {
			t.Fatal(said)
		}
		debs, err := filepath.Glob(out + "/*.deb")
		if err != nil || len(debs) != 1 {
			t.Fatal(debs, err)
		}
		version, err := run(t.Context(), "dpkg-deb", "--field", debs[0], "Version")
		if err != nil {
			t.Fatal(version)
		}
		version = strings.TrimSpace(version)
		if said, err := run(t.Context(), "dpkg", "--compare-versions", version, "gt", last); err != nil {
			t.Errorf("%s is not after %s: %s", version, last, said)
		}
		last = version
	}
}

// The example is a file that the agent reads.
func TestExample(t *testing.T) {
	data, err := os.ReadFile("site.json")
	if err != nil {
		t.Fatal(err)
	}
	var b spec.Bootstrap
	if _, err := spec.DecodeKnown(data, &b); err != nil || b.Fleet == "" || b.Threshold != 1 || len(b.Keys) != 1 {
		t.Errorf("%v: %+v", err, b)
	}
}

// The package installs, upgrades, is removed and purged on each release, and leaves
// nothing behind. What systemd is asked is written down by a systemctl of the test.
//
// The one before has a program that says its version and does nothing else.
func onDebian(t *testing.T, after string) {
	t.Helper()
	require.Root(t)
	dir := t.TempDir()
	program := filepath.Join(dir, "caisson-agent")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho caisson-agent v1.0.0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if said, err := run(t.Context(), "../hack/deb", program, "amd64", "v1.0.0", "2026-11-21T12:00:00Z", dir); err != nil {
		t.Fatal(said)
	}
	for _, release := range debroot.Releases {
		t.Run(release, func(t *testing.T) {
			r := debroot.New(t, release)
			r.Put(filepath.Join(dir, "caisson-agent_1.0.0_amd64.deb"), "root/before.deb")
			r.Put(after, "root/after.deb")
			const list = `find / -xdev -path /proc -prune -o -path /var/lib/dpkg -prune -o -path /var/log -prune -o -path /run -prune -o -printf '%p %y %m %u %l\n' | sort`
			r.Must(`echo 0123456789abcdef0123456789abcdef >/etc/machine-id; mkdir -p /run/systemd/system /usr/local/sbin; printf '#!/bin/sh\necho "$*" >>/run/asked\n' >/usr/local/sbin/systemctl; chmod 755 /usr/local/sbin/systemctl`)
			asked := func() string { return strings.TrimSpace(r.Must(`cat /run/asked 2>/dev/null; rm -f /run/asked`)) }
			clean := r.Must(list)

			r.Must(`dpkg --install /root/before.deb`)
			if got := asked(); got != "daemon-reload" {
				t.Errorf("an installation asks systemd for %q", got)
			}
			if got := r.Must(`caisson-agent version; /usr/bin/systemctl --root=/ is-enabled caisson-agent.service || true`); !strings.Contains(got, "v1.0.0") || !strings.Contains(got, "disabled") {
				t.Error(got)
			}
			if got, ok := r.Run(`systemd-analyze verify --man=no /usr/lib/systemd/system/caisson-agent.service 2>&1`); !ok || strings.Contains(got, "caisson-agent") {
				t.Errorf("the unit: %s", got)
			}
			r.Must(`cp /usr/share/doc/caisson-agent/examples/site.json /etc/caisson/; /usr/bin/systemctl --root=/ enable caisson-agent.service; mkdir -p /var/lib/caisson/journal; echo kept >/var/lib/caisson/journal/x`)

			r.Must(`dpkg --install /root/after.deb`)
			if got := asked(); got != "daemon-reload\n--no-block try-restart caisson-agent.service" {
				t.Errorf("an upgrade asks systemd for %q", got)
			}
			if got := r.Must(`caisson-agent version; cat /var/lib/caisson/journal/x /etc/caisson/site.json; /usr/bin/systemctl --root=/ is-enabled caisson-agent.service`); !regexp.MustCompile(`(?s)v1\.2\.3-rc1.*kept.*metal-a.*enabled`).MatchString(got) {
				t.Errorf("after an upgrade: %s", got)
			}
			if got := r.Must(`dpkg --remove caisson-agent 2>&1`); !strings.Contains(got, "restore --all") {
				t.Errorf("a removal does not say what stays: %s", got)
			}
			if got := asked(); got != "stop caisson-agent.service\ndaemon-reload" {
				t.Errorf("a removal asks systemd for %q", got)
			}
			r.Must(`grep -q metal-a /etc/caisson/site.json && dpkg --install /root/after.deb && caisson-agent version && dpkg --purge caisson-agent`)
			if got := r.Must(list); got != clean {
				t.Errorf("a purge leaves:\n%s", difference(clean, got))
			}
			if got := r.Must(`dpkg-query --show --showformat '${Status}' caisson-agent 2>&1 || true`); strings.Contains(got, "installed") && !strings.Contains(got, "not-installed") {
				t.Error(got)
			}
			if got, ok := r.Run(`dpkg --install /root/after.deb && caisson-agent status`); ok || !strings.Contains(got, "enroll") {
				t.Errorf("a host that is not enrolled: %s", got)
			}
		})
	}
}

// difference lists the lines that one text has and the other has not.
func difference(a, b string) string {
	var out []string
	for sign, pair := range map[string][2]string{"-": {a, b}, "+": {b, a}} {
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains("\n"+pair[1], "\n"+line) {
				out = append(out, sign+line)
			}
		}
	}
	return strings.Join(out, "")
}
