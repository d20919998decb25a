// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// wanted is the configuration that every peer is given.
type wanted struct {
	Sysctls []pair // key with dots, value
	Files   []pair // path, content
	Units   []pair // name, content; each is enabled
	DropIns []pair // path below /etc/systemd/system, content
	Mounts  []pair // target, options of a tmpfs
}

type pair struct{ Name, Value string }

// cards is how many interfaces the parameters are of.
const cards = 25

// perCard are parameters of an interface with the other value than the kernel's.
var perCard = []pair{{"accept_local", "1"}, {"arp_accept", "1"}, {"arp_announce", "1"}, {"arp_filter", "1"}, {"arp_ignore", "1"},
	{"arp_notify", "1"}, {"bc_forwarding", "1"}, {"disable_policy", "1"}, {"disable_xfrm", "1"}, {"drop_gratuitous_arp", "1"},
	{"drop_unicast_in_l2_multicast", "1"}, {"ignore_routes_with_linkdown", "1"}, {"log_martians", "1"}, {"proxy_arp", "1"},
	{"proxy_arp_pvlan", "1"}, {"src_valid_mark", "1"}, {"promote_secondaries", "1"}, {"secure_redirects", "0"},
	{"send_redirects", "0"}, {"shared_media", "0"}}

// all is 500 kernel parameters, 200 files, 25 units with a drop-in each, 10 mounts.
func all() wanted {
	var w wanted
	for card := range cards {
		for _, p := range perCard {
			w.Sysctls = append(w.Sysctls, pair{fmt.Sprintf("net.ipv4.conf.peer%d.%s", card, p.Name), p.Value})
		}
	}
	for n := range 200 {
		w.Files = append(w.Files, pair{fmt.Sprintf("/etc/site/part%d/file%d.conf", n%10, n),
			strings.Repeat(fmt.Sprintf("option%d = value %d\n", n, n*n), 20)})
	}
	for n := range 25 {
		name := fmt.Sprintf("job%d.service", n)
		w.Units = append(w.Units, pair{name, fmt.Sprintf("[Unit]\nDescription=Job %d\n\n[Service]\nExecStart=/bin/sleep "+
			"infinity\n\n[Install]\nWantedBy=multi-user.target\n", n)})
		w.DropIns = append(w.DropIns, pair{name + ".d/50-site.conf", fmt.Sprintf("[Service]\nEnvironment=NUMBER=%d\n", n)})
	}
	for n := range 10 {
		w.Mounts = append(w.Mounts, pair{fmt.Sprintf("/srv/data%d", n), "size=1m,mode=0755"})
	}
	return w
}

// count returns how many settings there are.
func (w wanted) count() int {
	return len(w.Sysctls) + len(w.Files) + len(w.Units) + len(w.DropIns) + len(w.Mounts)
}

// missing returns the settings that are not in effect in the root at dir, whose processes see
// this program's /proc/sys.
func (w wanted) missing(dir string) (out []string) {
	for _, s := range w.Sysctls {
		if got, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(s.Name, ".", "/")); err != nil || string(bytes.TrimSpace(got)) != s.Value {
			out = append(out, s.Name)
		}
	}
	file := func(name, content string) {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
			out = append(out, name)
		}
	}
	for _, f := range w.Files {
		file(f.Name, f.Value)
	}
	for _, d := range w.DropIns {
		file("/etc/systemd/system/"+d.Name, d.Value)
	}
	for _, u := range w.Units {
		name := "/etc/systemd/system/" + u.Name
		if _, err := os.Lstat(filepath.Join(dir, "/etc/systemd/system/multi-user.target.wants", u.Name)); err != nil {
			out = append(out, name)
			continue
		}
		file(name, u.Value)
	}
	for _, m := range w.Mounts {
		if !mounted(filepath.Join(dir, m.Name)) {
			out = append(out, m.Name)
		}
	}
	return out
}

// torn returns how many files are there with other content than they are to have.
func (w wanted) torn(dir string) (n int) {
	for _, f := range w.Files {
		if got, err := os.ReadFile(filepath.Join(dir, f.Name)); err == nil && string(got) != f.Value {
			n++
		}
	}
	return n
}

// mounted reports whether something is mounted at a directory.
func mounted(dir string) bool {
	var at, above syscall.Stat_t
	return syscall.Stat(dir, &at) == nil && syscall.Stat(filepath.Dir(dir), &above) == nil && at.Dev != above.Dev
}
