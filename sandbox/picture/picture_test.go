// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// inside is set in the process of a test that has mounts and a network of its own.
const inside = "CAISSON_PICTURE_INSIDE"

// Two pictures of one machine are equal; each change that is planted between them is named,
// and nothing else. Of what other processes of the host change, nothing is asked.
func TestPlantedChanges(t *testing.T) {
	if os.Getenv(inside) == "" {
		require.Root(t)
		require.Tool(t, "ip", "mount", "sysctl")
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlantedChanges$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const place = "/mnt" // of this process alone; what is below /tmp changes by itself
	sh := func(script string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = place
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := exec.CommandContext(t.Context(), "sh", "-ec", "mount --make-rprivate /; mount -t tmpfs none /mnt").Run(); err != nil {
		t.Fatal(err)
	}
	sh("mkdir over; for f in same content mode gone; do echo a >$f; done; ln -s same link; ip link set lo up")
	take := func() Picture {
		t.Helper()
		p, err := Take(Options{Places: []string{place}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := take()
	if all := mine(Compare(before, take()), place); len(all) > 0 {
		t.Fatalf("nothing was changed: %v", all)
	}
	sh("echo b >content; chmod 600 mode; touch came; rm gone; ln -sfn content link; mount -t tmpfs -o size=1m none over; sysctl -qw net.ipv4.conf.lo.forwarding=1; " +
		"ip link set lo mtu 1400; ip address add 192.0.2.1/24 dev lo; ip route add 198.51.100.0/24 dev lo")
	want := []string{"address lo 192.0.2.1/24", "file came", "file content", "file gone", "file link", "file mode", "file over", "link lo", "mount over",
		"route 192.0.2.0/24 dev lo table 255 metric 0", "route 192.0.2.1/32 dev lo table 255 metric 0", "route 192.0.2.255/32 dev lo table 255 metric 0", "route 198.51.100.0/24 dev lo table 254 metric 0", "sysctl net.ipv4.conf.lo.forwarding", "sysctl net.ipv6.conf.lo.mtu"}
	if got := mine(Compare(before, take()), place); !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// mine names what differs in the namespaces of the test, with paths below its directory.
func mine(all []Difference, place string) (names []string) {
	for _, d := range all {
		name := d.Kind + " " + strings.TrimPrefix(d.Key, place+"/")
		if slices.Contains([]string{"address", "file", "link", "mount", "route"}, d.Kind) || strings.HasPrefix(name, "sysctl net.") {
			names = append(names, name)
		}
	}
	return names
}

// What somebody wrote is seen in an overlay by its own name, and what is hidden, too.
func TestWritten(t *testing.T) {
	upper := t.TempDir()
	if err := os.MkdirAll(filepath.Join(upper, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(upper, "etc/motd"), []byte("hello"), 0o640); err != nil {
		t.Fatal(err)
	}
	p := Picture{}
	p.written(upper, "/", nil, nil)
	if got := p["file /etc/motd"]; !strings.HasPrefix(got, "100640 ") || !strings.Contains(got, " 2cf24dba5fb0") {
		t.Errorf("%q of %v", got, p)
	}
}

// What an overlay keeps a copy of, and is as below it again, was not left behind: what was changed is, and
// what is as in a directory that another one hides.
func TestChangedBack(t *testing.T) {
	top := t.TempDir()
	for name, text := range map[string]string{"1/etc/passwd": "root", "1/etc/group": "root", "1/etc/both": "high", "0/etc/both": "low", "0/etc/shadow": "root",
		"upper/etc/passwd": "root", "upper/etc/group": "eve", "upper/etc/shadow": "root", "upper/etc/both": "low", "upper/etc/new": ""} {
		name = filepath.Join(top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	m := parseMounts("43 1 0:27 / / rw,relatime - overlay caisson rw,lowerdir=" + top + "/1:" + top + "/0,upperdir=" + top + "/upper,workdir=" + top + "/work\n")
	p := Picture{}
	p.all(written(m, isDirectory))
	var names []string
	for name := range p {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"file /etc/both", "file /etc/group", "file /etc/new"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// Of a directory with a mount on it the mount's is what is seen, not the one beneath.
func TestMountPoint(t *testing.T) {
	upper, disk := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(upper, "var/lib/x"), 0o755), os.Chmod(disk, 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 20 { // a map's order is another one each time
		p := Picture{}
		p.all(map[string]string{upper: "/", disk: "/var/lib/x"}, nil, nil)
		if got := p["file /var/lib/x"]; !strings.HasPrefix(got, "040700 ") {
			t.Fatalf("%q", got)
		}
	}
}

// A directory that an overlay has on the way to what was written is not named beside that.
func TestLeads(t *testing.T) {
	got := Compare(Picture{"file /etc": "040755 0:0", "file /srv": "040755 0:0"}, Picture{"file /etc": "040700 0:0", "file /srv": "040755 0:0", "file /srv/new": "040755 0:0", "file /root": "040700 0:0", "file /root/left": "100644 0:0"})
	var names []string
	for _, d := range got {
		names = append(names, d.Key)
	}
	if want := []string{"/etc", "/root/left", "/srv/new"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// Each row of what changes by itself has a reason, names something, and names no setting.
func TestAlone(t *testing.T) {
	for line := range strings.Lines(aloneText) {
		if pattern, why, _ := strings.Cut(strings.TrimSpace(line), "#"); pattern != "" && strings.TrimSpace(why) == "" {
			t.Errorf("%q has no reason", line)
		}
	}
	for name, want := range map[string]bool{"sysctl kernel.random.uuid": true, "sysctl vm.swappiness": false, "file /var/log/syslog": true,
		"file /etc/hosts": false, "unit nginx.service": false, "sysctl kernel.random": false, "file /etc/ld.so.cache": true} {
		if Alone(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// What is drawn or measured at each boot does not count as left behind.
func TestAnotherBoot(t *testing.T) {
	left := Compare(Picture{"sysctl net.ipv4.tcp_fastopen_key": "a", "file /etc/ssh/ssh_host_ed25519_key": "b", "file /etc/ssh/ssh_host_ed25519_key.pub": "c",
		"sysfs /sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc", "file /etc/ssh/sshd_config": "d"}, Picture{"file /etc/ssh/sshd_config": "e"})
	if len(left) != 1 || left[0].Key != "/etc/ssh/sshd_config" {
		t.Errorf("%+v", left)
	}
}
