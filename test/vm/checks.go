// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/internal/machine"
)

// Settled is a command that ends when systemd has started all that a boot starts. It asks
// as root, without the bus, and again after a while: systemctl may miss what it waits for,
// and then waits for ever.
const Settled = "until sudo timeout 10 systemctl is-system-running --wait >/dev/null; test $? -ne 124; do :; done"

// Check is one thing that must hold on a booted node, as a user would look.
type Check struct {
	What    string // for people
	Command string // run as the site's user
	Want    string // the whole output, or, after "~", a part of it
}

// Seen is what a node answered a check.
type Seen struct {
	Check
	Got string // trimmed
	Err error  // what does not hold
}

// Look runs checks one after the other, in one command: a shell for each takes an emulated
// processor longer than most of the commands. The error is that the node did not answer.
func Look(ctx context.Context, s *machine.Session, checks ...Check) ([]Seen, error) {
	const mark = "\x1e" // ends an answer, and the exit code after it
	var script strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&script, "(\n%s\n) 2>/tmp/look; code=$?; test $code = 0 || cat /tmp/look; printf '\\036%%d\\036' $code\n", c.Command)
	}
	out, err := s.Run(ctx, script.String())
	if err != nil {
		return nil, err
	}
	answers := strings.Split(out, mark)
	if len(answers) != 2*len(checks)+1 {
		return nil, fmt.Errorf("%d checks have %d answers: %q", len(checks), len(answers)/2, out)
	}
	seen := make([]Seen, len(checks))
	for i, c := range checks {
		seen[i] = Seen{c, strings.TrimSpace(answers[2*i]), nil}
		seen[i].Err = c.holds(seen[i].Got, answers[2*i+1])
	}
	return seen, nil
}

func (c Check) holds(got, code string) error {
	part, isPart := strings.CutPrefix(c.Want, "~")
	switch {
	case code != "0":
		return fmt.Errorf("%s: %s: exit code %s, after %q", c.What, c.Command, code, got)
	case isPart && !strings.Contains(got, part), !isPart && got != c.Want:
		return fmt.Errorf("%s: %s prints %q, want %q", c.What, c.Command, got, c.Want)
	}
	return nil
}

// Quickstart is what examples/quickstart promises of a node; swappiness is 10,
// or 1 on nodes of the role that overrides it.
func Quickstart(node, swappiness string) []Check {
	return []Check{
		{"host name", "hostname", node},
		{"package", "jq --version", "~jq-"},
		{"sudo", "sudo -n id -u", "0"},
		{"sessions in UTF-8, and no complaint of PAM", "echo $LANG; sudo journalctl -b -q --no-pager | grep 'open env file' || true", "C.UTF-8"},
		{"logins at a console", "ls /usr/bin/login /usr/sbin/nologin | xargs", "/usr/bin/login /usr/sbin/nologin"},
		{"time zones", "TZ=Europe/Berlin date -d @0 +%R", "01:00"},
		{"profile loaded in enforce mode", `sudo grep -x 'tree (enforce)' /sys/kernel/security/apparmor/profiles`, "tree (enforce)"},
		{"profile confines", "tree /etc | tail -n 1", "~0 directories"},
		{"sysctl, overridden by label", "cat /proc/sys/vm/swappiness", swappiness},
		{"sysctl", "cat /proc/sys/kernel/panic", "30"},
		{"mount", "findmnt -no FSTYPE,SIZE /srv/scratch | tr -s ' '", "tmpfs 64M"},
		{"ethtool feature", "/usr/sbin/ethtool -k eth0 | grep '^generic-receive-offload'", "generic-receive-offload: off"},
		{"limits", "ulimit -n", "65536"},
		{"script output", "cat /run/hello", "hello, caisson"},
		{"a script is a service of its own", "sudo journalctl -b -q --no-pager _PID=1 | grep -m1 -o 'Caisson: caisson-exec-'", "Caisson: caisson-exec-"},
		{"the agent is confined", "systemctl show -P NoNewPrivileges -P LockPersonality caisson-agent | tr '\\n' ' '", "yes yes"},
		{"its memory is bounded, with images in it", "awk -v most=$(systemctl show -P MemoryMax caisson-agent) '/^MemTotal/ {print (most/1024 > $2/2 && most/1024 < $2)}' /proc/meminfo", "1"},
		{"images below the stack are closed", "ls /run/caisson/images 2>&1 || true", "~Permission denied"},
		{"kernel argument", "grep -o transparent_hugepage=never /proc/cmdline", "transparent_hugepage=never"},
		{"/usr is read-only", "sudo touch /usr/x 2>&1 || true", "~Read-only file system"},
		{"network still leased", "networkctl status eth0 --no-pager | grep -o 'DHCPv\\?4 via 10.0.2.2'", "~ via 10.0.2.2"},
		{"address", "ip -4 -br addr show eth0 | tr -s ' ' | cut -d' ' -f3", "10.0.2.15/24"},
		{"no failed units", "systemctl --failed --no-legend --plain", ""},
		{"status", "sudo caisson-agent status", "~health      ok"},
	}
}
