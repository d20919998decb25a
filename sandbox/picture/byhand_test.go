// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// whole is set where the machine is one that nobody else uses: all of it is looked at.
const whole = "CAISSON_PICTURE_WHOLE"

// explained are the differences between a picture and the listings of an administrator's tools, with
// the reason of each. "-" begins what only tools name, "+" what only the picture has.
var explained = map[string]string{
	`[+~] sysctl net\.ipv[46]\.neigh\..*\.(base_reachable_time|retrans_time)`: "sysctl(8) leaves out names that are deprecated",
	`\+ sysctl vm\.stat_refresh`:               "it is an order: sysctl(8) does not give it",
	`\+ sysctl .*\.stable_secret`:              "it is listed only where it was set",
	`- file /(proc|sys|dev)(/.*)?`:             "the kernel's own: keys and attributes are named one by one",
	`[-+] file /run/caisson/.*`:                "the parts of the root: what is written there has its name in the root",
	`[-~] (module|mount|unit) .*binfmt.misc.*`: "sysctl(8) looks into it, which mounts it and loads its module",
	`\+ sysctl kernel\.sched_energy_aware`:     "it cannot be read where all processors are alike: sysctl(8) passes over it",
	`\+ route .* table 255 .*`:                 "ip(8) leaves out what the kernel adds for multicasts of a card that is down",
}

// TestByHand compares a picture with what sysctl -a, find, findmnt, ip, lsmod, getent and systemctl
// list: each difference is one that is explained. Beside other programs it looks at mounts and a
// network of its own; test/vm runs it on a whole machine.
func TestByHand(t *testing.T) {
	all := os.Getenv(whole) != ""
	if !all && !inNamespaces(t, "ip", "mount", "sysctl", "find", "findmnt") {
		return
	}
	o := Options{}
	if !all {
		o.Places = []string{"/mnt"} // of this process alone
		hand(t, `mount --make-rprivate /; mount -t tmpfs none /mnt; cd /mnt; mkdir -p a/b "with space"; echo x >a/b/c; ln -s c a/b/l
			mknod n c 1 3; chmod 2750 a; chown 7:8 a/b/c; ip link set lo mtu 1400 up; ip address add 192.0.2.1/24 dev lo; ip route add 198.51.100.0/24 dev lo metric 7`)
	}
	p, err := Take(o)
	if err != nil {
		t.Fatal(err)
	}
	listed := byHand(t, all)
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		is, there := p[name]
		switch says := listed[name]; {
		case !there:
			unknown = append(unknown, "- "+name)
		case says != "" && says != shown(name, is):
			unknown = append(unknown, fmt.Sprintf("~ %s: %q by hand, %q", name, says, shown(name, is)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		kind, _, _ := strings.Cut(name, " ")
		if _, there := listed[name]; !there && slices.Contains(compared(all), kind) {
			unknown = append(unknown, "+ "+name)
		}
	}
	t.Logf("%d lines by hand, %d in the picture", len(listed), len(p))
	for _, d := range slices.DeleteFunc(unknown, isExplained) {
		t.Errorf("%s", d)
	}
}

// compared are the kinds of which tools list everything.
func compared(all bool) []string {
	if all {
		return []string{"sysctl", "link", "address", "route", "unit", "module", "mount"}
	}
	return []string{"sysctl", "link", "address", "route", "file"}
}

func isExplained(d string) bool {
	for pattern := range explained {
		if regexp.MustCompile(`^(` + pattern + `)(: .*)?$`).MatchString(d) {
			return true
		}
	}
	// What changes by itself does so between the two listings, too.
	return Alone(strings.SplitN(d[2:], ": ", 2)[0])
}

// shown is the part of a value that tools show in the same way.
func shown(name, value string) string {
	words := strings.Fields(value)
	switch kind, _, _ := strings.Cut(name, " "); kind {
	case "link":
		return strings.Join(words[:4], " ") // mac and mtu
	case "file":
		return strings.Join(words[:2], " ") // mode and owner
	case "mount":
		return words[0]
	}
	return strings.Join(words, " ")
}

// listing has a value for each "KIND KEY".
type listing map[string]string

// byHand has what an administrator would list, by the names of the picture. "" is a value that the
// tool does not show.
func byHand(t *testing.T, all bool) listing {
	t.Helper()
	l := listing{}
	for line := range strings.Lines(hand(t, "sysctl -a || true")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " =")
		if strings.HasPrefix(key, "fs.binfmt_misc.") {
			continue // a look would mount it
		}
		name := "sysctl " + key
		l[name] = strings.TrimSpace(l[name] + " " + strings.Join(strings.Fields(value), " "))
	}
	l.network(t)
	places := "/mnt"
	if all {
		places = `$(findmnt -rn -O rw -t btrfs,ext2,ext3,ext4,f2fs,tmpfs,vfat,xfs -o TARGET)`
	}
	files := hand(t, "find "+places+` -xdev -printf '%y %m %U:%G %p\n'`)
	if all { // what was written to the root since it was stacked
		files += hand(t, `find / -xdev -newerct "$(date -d "$(uptime -s) - 1 hour" '+%F %T')" -printf '%y %m %U:%G %p\n'`)
	}
	kinds := map[string]string{"f": "10", "d": "04", "l": "12", "c": "02", "b": "06", "p": "01", "s": "14"}
	for line := range strings.Lines(files) {
		words := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		l["file "+words[3]] = fmt.Sprintf("%s%04s %s", kinds[words[0]], words[1], words[2])
	}
	if !all {
		return l
	}
	seen := map[string]int{}
	for line := range strings.Lines(hand(t, "findmnt -rn -o TARGET,FSTYPE")) {
		words := strings.Fields(line)
		name := "mount " + escaped.Replace(strings.ReplaceAll(words[0], `\x20`, " "))
		if seen[name]++; seen[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, seen[name])
		}
		l[name] = words[1]
	}
	for line := range strings.Lines(hand(t, "lsmod | tail -n +2")) {
		l["module "+strings.Fields(line)[0]] = ""
	}
	for _, file := range []string{"passwd", "group"} {
		for line := range strings.Lines(hand(t, "getent -s files "+file)) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
			l["account "+file+" "+name] = strings.Join(strings.Fields(rest), " ")
		}
	}
	for unit := range strings.SplitSeq(hand(t, "SYSTEMD_BUS_TIMEOUT=300 systemctl show --all -p Id,LoadState,ActiveState,SubState '*'"), "\n\n") {
		has := map[string]string{}
		for line := range strings.Lines(unit) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			has[key] = value
		}
		l["unit "+has["Id"]] = has["LoadState"] + " " + has["ActiveState"] + " " + has["SubState"]
	}
	return l
}

// network adds what ip(8) lists.
func (l listing) network(t *testing.T) {
	t.Helper()
	var links []struct {
		Name string `json:"ifname"`
		MAC  string `json:"address"`
		MTU  int    `json:"mtu"`
	}
	var addresses []struct {
		Name string `json:"ifname"`
		All  []struct {
			Local     string `json:"local"`
			PrefixLen int    `json:"prefixlen"`
		} `json:"addr_info"`
	}
	for command, into := range map[string]any{"ip -j link": &links, "ip -j address": &addresses} {
		if err := json.Unmarshal([]byte(hand(t, command)), into); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
	for _, one := range links {
		l["link "+one.Name] = fmt.Sprintf("mac %s mtu %d", one.MAC, one.MTU)
	}
	for _, one := range addresses {
		for _, a := range one.All {
			l[fmt.Sprintf("address %s %s/%d", one.Name, a.Local, a.PrefixLen)] = ""
		}
	}
	for family, bits := range map[string]string{"4": "/32", "6": "/128"} {
		var routes []struct {
			To     string `json:"dst"`
			Device string `json:"dev"`
			Table  string `json:"table"`
			Metric int    `json:"metric"`
		}
		if err := json.Unmarshal([]byte(hand(t, "ip -N -j -"+family+" route show table all")), &routes); err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			switch {
			case r.To == "default":
				r.To += map[string]string{"4": " (2)", "6": " (10)"}[family]
			case !strings.Contains(r.To, "/"):
				r.To += bits
			}
			l[fmt.Sprintf("route %s dev %s table %s metric %d", r.To, r.Device, cmp.Or(r.Table, "254"), r.Metric)] = ""
		}
	}
}

// hand runs a line as somebody would at a terminal.
func hand(t *testing.T, line string) string {
	t.Helper()
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, said.String())
	}
	return string(out)
}
