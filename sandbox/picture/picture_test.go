// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// inside is set in the process of a test that has mounts and a network of its own.
const inside = "CAISSON_PICTURE_INSIDE"

// inNamespaces reports whether this is such a process. Else it has the test run in one.
func inNamespaces(t *testing.T, tools ...string) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	require.Root(t)
	require.Tool(t, tools...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// Two pictures of one machine are equal; each change that is planted between them is named,
// and nothing else. Of what other processes of the host change, nothing is asked.
func TestPlantedChanges(t *testing.T) {
	if !inNamespaces(t, "ip", "mount", "sysctl") {
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
	take := func() Picture { return mustTake(t, place) }
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

// What an overlay keeps a copy of and is as below it again was not left behind, nor is what only a
// soft-reboot moved: the same root is stacked by other ways, which end.
func TestChangedBack(t *testing.T) {
	if !inNamespaces(t, "mount", "umount") {
		return
	}
	hand(t, "mount --make-rprivate /; mount -t tmpfs none /mnt; cd /mnt; mkdir -p root high/etc base/etc/ssh base/usr; "+
		"for f in passwd group shadow; do echo root >base/etc/$f; done; echo high >high/etc/group; echo tool >base/usr/tool")
	stack := func(by string) Picture { // as a loader does it, with what it writes
		hand(t, "cd /mnt; mkdir -p "+by+"; cd "+by+"; mkdir high base up; mount --bind ../high high; mount --bind ../base base; mount -t tmpfs none up; mkdir up/upper up/work; "+
			"mount -t overlay -o lowerdir=high:base,upperdir=up/upper,workdir=up/work none /mnt/root; mount --bind /mnt/root/usr /mnt/root/usr; umount -l high base up; "+
			"cd ../root/etc; echo node >hostname; echo node >ssh/node")
		return mustTake(t, "/mnt/root")
	}
	before := stack("first")
	if before["file /mnt/root/etc/shadow"] == "" || before["file /mnt/root/usr/tool"] != "" {
		t.Fatalf("%v", before)
	}
	hand(t, "cd /mnt/root/etc; echo eve >passwd; echo root >passwd; rm shadow; echo root >shadow; chmod 600 group; chmod 644 group; rm hostname; echo node >hostname; touch ssh/new; rm ssh/new")
	if left := mine(Compare(before, mustTake(t, "/mnt/root")), "/mnt/root"); len(left) > 0 {
		t.Errorf("all was changed back: %q", left)
	}
	hand(t, "umount /mnt/root/usr /mnt/root")
	after := stack("second")
	if left := mine(Compare(before, after), "/mnt/root"); len(left) > 0 {
		t.Errorf("behind a soft-reboot: %q", left)
	}
	hand(t, "cd /mnt/root/etc; rm passwd; echo low >group; echo new >new; mkdir -p srv/a; touch srv/a/b")
	left := mine(Compare(after, mustTake(t, "/mnt/root")), "/mnt/root")
	if want := []string{"file etc/group", "file etc/new", "file etc/passwd", "file etc/srv/a/b"}; !slices.Equal(left, want) {
		t.Errorf("%q, want %q", left, want)
	}
}

func mustTake(t *testing.T, places ...string) Picture {
	t.Helper()
	p, err := Take(Options{Places: places})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What an interface is called is in the picture by each name: one that does not get its own back is named with
// what was configured on it.
func TestRenamed(t *testing.T) {
	if !inNamespaces(t, "ip") {
		return
	}
	hand(t, "ip link set lo name lan0 && ip link set lan0 up && ip address add 192.0.2.1/24 dev lan0")
	before := mustTake(t, t.TempDir())
	hand(t, "ip link set lan0 down && ip link set lan0 name eth0 && ip link set eth0 up")
	left := mine(Compare(before, mustTake(t, t.TempDir())), "/mnt")
	for _, want := range []string{"link eth0", "link lan0", "address eth0 192.0.2.1/24", "address lan0 192.0.2.1/24"} {
		if !slices.Contains(left, want) {
			t.Errorf("%s is not among %q", want, left)
		}
	}
	hand(t, "ip link set eth0 down && ip link set eth0 name lan0 && ip link set lan0 up")
	if left := mine(Compare(before, mustTake(t, t.TempDir())), "/mnt"); slices.ContainsFunc(left, func(name string) bool { return strings.HasPrefix(name, "link ") }) {
		t.Errorf("it has its name again: %q", left)
	}
}

// A directory that came is not named beside what came below it.
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
		"file /etc/hosts": false, "unit nginx.service": false, "sysctl kernel.random": false, "file /etc/ld.so.cache": true, "file /run/chrony/chronyd.pid": true, "file /run/planted": false} {
		if Alone(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// What a node was given is compared, also where the kernel changes it from one boot to another.
func TestSet(t *testing.T) {
	for boot, want := range map[string]int{"1": 1, "2": 0} {
		before := Picture{"sysctl kernel.random.boot_id": "1", "sysctl net.ipv4.tcp_mem": "1 2 3", "sysctl net.ipv4.udp_mem": "1 2 3"}
		after := Picture{"sysctl kernel.random.boot_id": boot, "sysctl net.ipv4.tcp_mem": "4 5 6", "sysctl net.ipv4.udp_mem": "4 5 6"}
		if left := Compare(before, after, "sysctl net.ipv4.tcp_mem"); len(left) != want || want > 0 && left[0].Key != "net.ipv4.tcp_mem" {
			t.Errorf("in boot %s: %+v", boot, left)
		}
		if left := Compare(before, after); len(left) > 0 {
			t.Errorf("in boot %s: %+v", boot, left)
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
