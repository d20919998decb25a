// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/convert/coverage"
)

func TestImport(t *testing.T) {
	for _, tt := range []struct {
		kind, line string
		as, why    string // of the one line
	}{
		{"sysctl", "a.b=1", "sysctl.a.b", ""},
		{"sysctl", "net/ipv4/conf/eth0.1/mtu = 2", "sysctl.net.ipv4.conf.eth0/1.mtu", ""},
		{"sysctl", "- a.b=1", "", "a site refuses it"},
		{"sysctl", "-a.b", "", "it excludes a key"},
		{"sysctl", "a.*=1", "", "a site has no patterns"},
		{"sysctl", "../x=1", "", "a site refuses it"},
		{"limits", "* - nofile 1", "limits.all-both-nofile", ""},
		{"limits", "* - nofile many", "", "a site refuses it"},
		{"limits", "* firm nofile 1", "", "a site refuses it"},
		{"limits", "* nofile 1", "", "a limit has four fields"},
		{"fstab", "tmpfs /srv tmpfs size=1m 0 0", "mounts.srv", ""},
		{"fstab", "tmpfs /proc tmpfs", "", "a site refuses it"},
		{"fstab", "/dev/a / ext4 defaults 0 1", "", "a site refuses it"},
		{"fstab", "/dev/a /srv ext4 defaults 0 2", "mounts.srv", "taken without its fsck pass 2"},
		{"fstab", "/dev/a /srv ext4 defaults 1 0", "mounts.srv", "taken without its dump 1"},
		{"fstab", "/dev/a /srv ext4 x-a 1 2 odd", "mounts.srv", "taken without x-a: write before and after instead; without its dump 1; without its fsck pass 2; without odd"},
		{"fstab", "/dev/vdb none swap sw,pri=10 0 0", "mounts.swap-dev-vdb", ""},
		{"fstab", "LABEL=swap swap swap defaults 0 0", "mounts.swapLABEL-swap", ""},
		{"fstab", "/dev/vdb none swap sw,offset=1 0 0", "", "a site refuses it"},
		{"fstab", "/dev/vdb none ext4", "", "a site refuses it"},
		{"fstab", "tmpfs", "", "a mount has at least three fields"},
		{"ethtool", "ethtool -K eth0 gro off", "ethtool.eth0.generic-receive-offload", ""},
		{"ethtool", "/sbin/ethtool -G eth0 rx 1", "", "only offload features"},
		{"ethtool", "ethtool -K eth0 gro", "", "features and values do not pair"},
		{"ethtool", "ethtool -K eth0 gro maybe", "", "a site refuses it"},
		{"ethtool", "rx: on", "", "it is neither"},
		{"modprobe", "blacklist usb-storage", "modules.blacklist", ""},
		{"modprobe", "options kvm-intel nested=1", "modules.parameters.kvm_intel.nested", ""},
		{"modprobe", "options x dyndbg=\"a", "", "dyndbg=\"a: write it"},
		{"modprobe", "options x", "", "it has no options"},
		{"modprobe", "install cramfs /bin/true", "", "a site has no commands for modules"},
		{"modprobe", "softdep a pre: b", "", "softdep has no counterpart"},
		{"modprobe", "blacklist", "", "it names no module"},
		{"modules-load", "br_netfilter", "modules.load", ""},
		{"modules-load", "two words", "", "it is not the name"},
	} {
		r, err := Import([]File{{Name: "f", Kind: tt.kind, Data: []byte(tt.line)}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Coverage) != 1 {
			t.Fatalf("%s: coverage %+v", tt.line, r.Coverage)
		}
		if l := r.Coverage[0]; l.As != tt.as || !strings.HasPrefix(l.Why, tt.why) || (tt.why == "") != (l.Why == "") || l.Taken != (tt.as != "") {
			t.Errorf("%s %q: %+v; want as %q, why %q", tt.kind, tt.line, l, tt.as, tt.why)
		}
	}
}

// TestKindByName: what content cannot tell, the directory does, also where nobody
// named the file.
func TestKindByName(t *testing.T) {
	r, err := Import([]File{{Name: "/etc/modules-load.d/k8s.conf", Data: []byte("# at boot\nbr_netfilter\noverlay\n"), Found: true},
		{Name: "/etc/modprobe.d/x.conf", Data: []byte("blacklist usb-storage\noptions kvm_intel nested=1\n"), Found: true}})
	if err != nil || r.Missed() != 0 || fmt.Sprint(r.Conf) != "map[modules:map[blacklist:[usb_storage] load:[br_netfilter overlay] parameters:map[kvm_intel:map[nested:1]]]]" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestLink(t *testing.T) {
	for text, want := range map[string]string{
		"[Match]\nOriginalName=eth0\n[Link]\nTCPSegmentationOffload=false\n":                   "ethtool.eth0.tcp-segmentation-offload",
		"[Match]\nMACAddress=x\n[Link]\nName=lan0\nGenericReceiveOffload=1\n":                  "ethtool.lan0.generic-receive-offload",
		"[Match]\nOriginalName=eth*\n[Link]\nGenericReceiveOffload=1\n":                        "",
		"[Match]\nOriginalName=eth0\n[Link]\nGenericReceiveOffload=perhaps\nMTU=9000\n":        "",
		"[Match]\nDriver=e1000\n[Link]\nLargeReceiveOffload=no\n[SR-IOV]\nVirtualFunction=1\n": "",
	} {
		r, err := Import([]File{{Name: "10.link", Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		var as []string
		for _, l := range r.Coverage {
			if l.Taken {
				as = append(as, l.As)
			} else if l.Why == "" {
				t.Errorf("%q: line %d is neither taken nor explained", text, l.Line)
			}
		}
		if got := strings.Join(as, " "); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A unit is taken as what it is, wherever it stands; what systemctl makes is not.
func TestUnits(t *testing.T) {
	const service, dropIn = "[Service]\nExecStart=/bin/true\n", "[Service]\nNice=5\n"
	for name, c := range map[string]struct{ text, as, why string }{
		"/etc/systemd/system/x.service": {service, "units.x.service.content", ""},
		"x.service":                     {service, "units.x.service.content", ""},
		"host/etc/systemd/system/x.service.d/10-nice.conf":      {dropIn, "units.x.service.dropIns.10-nice", ""},
		"x.service.d/10-nice.conf":                              {dropIn, "units.x.service.dropIns.10-nice", ""},
		"/etc/systemd/system/multi-user.target.wants/x.service": {service, "", "it is neither a unit nor a drop-in"},
		"/etc/systemd/system/cups.service":                      {"", "units.cups.service.state", ""},
		"/etc/systemd/system/cups.service.d/vendor.conf":        {"# nothing\n", "", "it is empty, and hides"},
		"/etc/udev/rules.d/80-net-setup-link.rules":             {"", "", "it is empty, and hides"},
		"/etc/sysctl.d/10-vendor.conf":                          {"# nothing\n", "", "it is empty, and hides"},
		"/etc/systemd/user/x.service":                           {service, "", "it is a unit of sessions"},
		"/etc/systemd/system/caisson-agent.service":             {service, "", "a site refuses it"},
	} {
		r, err := Import([]File{{Name: name, Data: []byte(c.text)}})
		if err != nil || len(r.Coverage) != 1 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if l := r.Coverage[0]; l.As != c.as || !strings.HasPrefix(l.Why, c.why) || (c.why == "") != (l.Why == "") {
			t.Errorf("%s: %+v, want as %q, why %q", name, l, c.as, c.why)
		}
	}
	ignition := `{"ignition": {"version": "3.4.0"}, "systemd": {"units": [
 {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n", "dropins": [{"name": "n.conf", "contents": "[Service]\nNice=5\n"}]},
 {"name": "b.service", "enabled": false}, {"name": "c.service", "mask": true, "contents": "[Service]\nExecStart=/bin/true\n"}, {"name": "d.service"}]}}`
	r, err := Import([]File{{Name: "config.ign", Data: []byte(ignition)}})
	if err != nil {
		t.Fatal(err)
	}
	var as []string
	for _, l := range r.Coverage {
		as = append(as, l.As)
	}
	want := []string{"units.a.service.content", "units.a.service.dropIns.n", "units.a.service.state", "units.b.service.state", "units.c.service.state", ""} // d says nothing
	if !slices.Equal(as, want) {
		t.Errorf("%q, want %q", as, want)
	}
	var b bytes.Buffer
	if err := r.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	if _, found := site.Parse(fstest.MapFS{"x": {Data: b.Bytes()}}, "x"); found.Err() != nil {
		t.Errorf("%v\n%s", found.Err(), b.String())
	}
	for _, want := range []string{"state: 'enabled'", "state: 'disabled'", "state: 'masked'"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}

// Names that differ only in what an id cannot hold stay apart.
func TestNamesStayApart(t *testing.T) {
	r, err := Import([]File{{Name: "fstab", Data: []byte("a /srv/x-y t\nb /srv/x/y t\nc /srv/x/y/ t\n")}})
	if err != nil {
		t.Fatal(err)
	}
	var as []string
	for _, l := range r.Coverage {
		as = append(as, l.As)
	}
	if !slices.Equal(as, []string{"mounts.srv-x-y", "", "mounts.srv-x-y-2"}) {
		t.Errorf("as = %v", as)
	}
}

// FuzzImport: whatever a host's files hold, nothing panics, every line that says
// something is accounted for, and what comes out is valid.
func FuzzImport(f *testing.F) {
	f.Add("sysctl", "a.b=1\na/b=2\n-a.b=3\n# c\n; d\n\x1b[31m=1\n")
	f.Add("limits", "* - nofile 1\n@a hard core 0\n*  -  nofile  2 # x\n")
	f.Add("fstab", "tmpfs /a\\040b tmpfs size=1 0 0\nx /a-b t\ny /a/b t\n")
	f.Add("link", "[Match]\nOriginalName=eth0\n[Link]\nGenericReceiveOffload=no\n")
	f.Add("ethtool", "Features for eth0:\ngro: on\nethtool -K eth0 gro off\n")
	for _, c := range others {
		f.Add(c.kind, c.text)
	}
	f.Add("machineconfig", "kind: MachineConfig\n\x7f: 1\n")
	f.Fuzz(func(t *testing.T, kind, text string) {
		if len(text) > 1<<12 || !slices.Contains(Kinds, kind) {
			t.Skip()
		}
		r, err := Import([]File{{Name: "f", Kind: kind, Data: []byte(text)}})
		if err != nil { // a document that is none is refused, with its place
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatal(err)
			}
			return
		}
		said := map[int]bool{}
		for _, l := range r.Coverage {
			said[l.Line] = true
			if !l.Taken && l.Why == "" {
				t.Errorf("line %d %q is neither taken nor explained", l.Line, l.Text)
			}
		}
		if comments, ok := byLine[kind]; ok {
			(&coverage.Reading{Data: text}).Lines(comments, func(n int, line string) {
				if !said[n] {
					t.Errorf("%s: line %d %q is dropped in silence", kind, n, line)
				}
			})
		}
		parsesAsIncluded(t, r)
	})
}

// byLine are the kinds whose lines say something each, with what begins a comment.
var byLine = map[string]string{"sysctl": "#;", "limits": "#", "fstab": "#", "passwd": "#", "packages": "#", "modprobe": "#", "modules-load": "#;",
	"interfaces": "#", "sysusers": "#", "preseed": "#", "tmpfiles": "#", "udev": "#"}

// What a file is, its content says, whatever its name.
func TestKindOf(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"99-x.conf", "# tuned\nvm.swappiness = 10\n-net/ipv4/ip_forward=1\n", "sysctl"},
		{"99-x.conf", "* hard nofile 65536 # all\n@adm - nproc unlimited\n", "limits"},
		{"limits.conf", "vm.swappiness = 10\n", "sysctl"},
		{"table", "UUID=a / ext4 errors=remount-ro 0 1\ntmpfs /srv tmpfs\n/dev/b none swap sw 0 0\n", "fstab"},
		{"nic", "# one\n[Match]\nOriginalName=eth0\n[Link]\nMTUBytes=9000\n", "link"},
		{"x", "# mine\n\n[Unit]\nDescription=x\n", "unit"},
		{"x", "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000:Ann,,,:/home/ann:/bin/bash\n", "passwd"},
		{"x", "jq\tinstall\nlibc6:amd64\tinstall\ntree\tdeinstall\n", "packages"},
		{"x", "#cloud-config\npackages: [jq]\n", "cloud-config"},
		{"x", "Features for eth0:\ngro: on\n", "ethtool"},
		{"/etc/sysctl.d/x", "broken\n", "sysctl"},
		{"/etc/default/grub", "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\n", ""},
		{"/etc/os-release", "NAME=\"Debian\"\nVERSION_ID=13\n", ""},
		{"/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n", ""},
		{"/etc/resolv.conf", "nameserver 192.0.2.1\n", ""},
		{"/etc/adduser.conf", "DSHELL=/bin/bash\n", ""},
	} {
		got := ""
		if k := kindOf(File{Name: tt.name, Data: []byte(tt.text)}); k != nil {
			got = k.name
		}
		if got != tt.want {
			t.Errorf("%s %q is %q, want %q", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestHost(t *testing.T) {
	r, err := Import([]File{
		{Name: "passwd", Data: []byte("root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/zsh\nmuch:too:few\n")},
		{Name: "list", Data: []byte("jq\tinstall\nlibc6:amd64\thold\ntree\tdeinstall\n")},
		{Name: "/etc/systemd/system/ssh.service.d/10-x.conf", Data: []byte("[Service]\nNice=5\n")},
		{Name: "/etc/sysctl.d/README", Found: true, Data: []byte("These are the settings of the host.\n")},
		{Name: "comments", Data: []byte("# nothing\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var as []string
	for _, l := range r.Coverage {
		as = append(as, l.As)
	}
	want := []string{"", "uamlite.users", "", "apt.packages", "apt.hold", "apt.packages", "", "units.ssh.service.dropIns.10-x", ""}
	if !slices.Equal(as, want) {
		t.Errorf("as %q, want %q", as, want)
	}
	if last := r.Coverage[len(r.Coverage)-1]; last.Line != 0 || last.Why == "" {
		t.Errorf("a file that nobody can tell: %+v", last)
	}
}

// TestTogether: of values that a site refuses beside each other one is left out, with the
// reason, and the rest stays.
func TestTogether(t *testing.T) {
	for name, c := range map[string]struct {
		files []File
		why   []string // of what is left out, by lines of the coverage
	}{
		"a uid": {[]File{{Name: "f", Kind: "passwd", Data: []byte("ann:x:1000:1000::/home/ann:/bin/bash\nbob:x:1000:1000::/home/bob:/bin/bash\ncat:x:1001:1001::/home/cat:/bin/bash\n")}},
			[]string{"", "a site refuses it: uid 1000 belongs to ann", ""}},
		"a switch": {[]File{{Name: "f", Kind: "sysctl", Data: []byte("net.ipv4.ip_forward=1\nnet.ipv4.conf.all.forwarding=0\nvm.swappiness=5\n")}},
			[]string{"", "it cannot have both values", ""}},
		"beside a network": {[]File{{Name: "f", Kind: "sysctl", Data: []byte("net.ipv4.ip_forward=1\nnet.ipv4.conf.all.forwarding=0\n")},
			{Name: "n", Kind: "networkd", Data: []byte("[Match]\nName=eth0\n[Network]\nDHCP=yes\n")}}, []string{"", "it cannot have both values", "", ""}},
		"a path": {[]File{{Name: "f", Data: []byte("#cloud-config\nwrite_files:\n- {path: /etc/b, content: x}\n- {path: /etc/a, content: \"x\\ny\"}\n- {path: /etc//a, content: y}\n")}},
			[]string{"", "/etc/a is written by /etc//a already", ""}},
		"an interface in files that are merged": {[]File{{Name: "a", Data: []byte("network:\n version: 2\n ethernets:\n  eth0: {dhcp4: true}\n  eth1: {dhcp4: true}\n")},
			{Name: "b", Data: []byte("network:\n version: 2\n ethernets:\n  eth0: {mtu: 9000}\n")}},
			[]string{"in one file: b:4 is of this interface, too", "", "in one file: a:4 is of this interface, too"}},
	} {
		r, err := Import(c.files)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range r.Coverage {
			if l.Taken == (c.why[i] != "") || !strings.HasSuffix(l.Why, c.why[i]) {
				t.Errorf("%s: %+v, want %q", name, l, c.why[i])
			}
		}
		parsesAsIncluded(t, r)
	}
}

func TestCaps(t *testing.T) {
	if _, err := Import([]File{{Name: "fstab", Data: make([]byte, MaxFile+1)}}); err == nil {
		t.Error("a file that is too large is read")
	}
	if _, err := Import([]File{{Name: "sysctl.conf", Data: []byte(strings.Repeat("x\n", maxLines+1))}}); err == nil {
		t.Error("a file of too many lines is read")
	}
	if r, err := Import([]File{{Name: "some.txt", Data: []byte("x\n")}, {Name: "90.conf", Data: []byte("vm.swappiness = 5\n")}}); err != nil || r.Missed() != 1 || fmt.Sprint(r.Conf) != "map[sysctl:map[vm.swappiness:5]]" {
		t.Errorf("an unknown file among others: %+v, %v", r, err)
	}
	if _, err := Import([]File{{Name: "some.txt", Data: []byte("x\n")}}); err == nil || !strings.Contains(fmt.Sprint(err), "unknown kind of file") {
		t.Errorf("err = %v", err)
	}
}
