// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		name, running, site, want string
		line, dropped             string
		differs                   bool
	}{
		{"as it is", "BOOTIF=01-52 initrd=initrd quiet", "quiet", "quiet", "BOOTIF=01-52 quiet panic=30 " + spec.KexecMarker, "", false},
		{"node wants more", "quiet", "quiet", "quiet isolcpus=2", "quiet isolcpus=2 panic=30 " + spec.KexecMarker, "", true},
		{"node wants less", "quiet caisson.node=a", "quiet", "", "caisson.node=a panic=30 " + spec.KexecMarker, "quiet", true},
		{"after kexec", "BOOTIF=01-52 isolcpus=2 panic=30 " + spec.KexecMarker, "quiet", "isolcpus=2", "BOOTIF=01-52 isolcpus=2 panic=30 " + spec.KexecMarker, "", false},
		{"what a loader told the next one", "quiet panic=30 " + spec.KexecMarker + " " + KexecCounted + "sha256:1", "quiet", "quiet", "quiet panic=30 " + spec.KexecMarker, "", false},
		{"consoles of the machine stay", "console=ttyS0 earlycon quiet", "quiet", "quiet", "console=ttyS0 earlycon quiet panic=30 " + spec.KexecMarker, "", false},
		{"the way to the network stays", "ip=eth0:dhcp nameserver=192.0.2.53 rd.route=198.51.100.0/24:192.0.2.1 ipv6.disable=1", "", "quiet", "ip=eth0:dhcp nameserver=192.0.2.53 rd.route=198.51.100.0/24:192.0.2.1 quiet panic=30 " + spec.KexecMarker, "ipv6.disable=1", true},
		{"a console that the site has taken away", "console=ttyS0", "console=ttyS0", "", "panic=30 " + spec.KexecMarker, "console=ttyS0", true},
		{"order of the author", "b a", "", "b a", "b a panic=30 " + spec.KexecMarker, "", false},
		{"words that nobody signed", "apparmor=0 systemd.debug_shell mitigations=off quiet -- 1", "quiet", "quiet", "quiet panic=30 " + spec.KexecMarker, "apparmor=0 systemd.debug_shell mitigations=off -- 1", true},
		{"the site's own panic", "quiet panic=30", "quiet", "quiet panic=0", "quiet panic=0 " + spec.KexecMarker, "panic=30", true},
		{"the default is on the line", "quiet panic=30", "quiet", "quiet", "quiet panic=30 " + spec.KexecMarker, "", false},
	} {
		site, want := strings.Fields(test.site), strings.Fields(test.want)
		l := KexecArguments(strings.Fields(test.running), site, want)
		if got, dropped := strings.Join(l.Words, " "), strings.Join(l.Dropped, " "); got != test.line || dropped != test.dropped || l.Differs != test.differs {
			t.Errorf("%s: %q without %q, %v; want %q without %q, %v", test.name, got, dropped, l.Differs, test.line, test.dropped, test.differs)
		}
		if again := KexecArguments(l.Words, site, want); again.Differs {
			t.Errorf("%s: after a kexec it would do another one: %q", test.name, again.Words)
		}
	}
}

// A marker on the first command line must not pass for a kexec.
func TestRan(t *testing.T) {
	for _, test := range []struct {
		line, kind string
		want       bool
	}{
		{spec.KexecMarker, "208\n", true}, // 0xd0: kexec
		{spec.KexecMarker, "102\n", false},
		{spec.KexecMarker, "nonsense", false},
		{spec.KexecMarker, "", true}, // not x86
		{"quiet", "208\n", false},
	} {
		proc := t.TempDir()
		if test.kind != "" {
			name := filepath.Join(proc, "sys/kernel/bootloader_type")
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(test.kind), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := RanKexec(strings.Fields(test.line), proc); got != test.want {
			t.Errorf("%q with loader %q: %v", test.line, test.kind, got)
		}
	}
}
