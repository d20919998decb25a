// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/caisson-os/caisson/spec"
)

var long = strings.Repeat("a", 64)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		what      string
		ok        func(string) error
		good, bad []string
	}{
		{"node", Node, []string{"a", "a-1.rack.example.org", long[:63], strings.Repeat("a.", 59) + "a"},
			[]string{"", "A", "Node_1", "-a", "a-", "a..b", ".a", "a.", long, "mac-525400000001", "uuid-1", "a b", "a\n", strings.Repeat("a.", 60) + "a"}},
		{"fleet", Fleet, []string{"a", "metal-a", long[:63]}, []string{"", "a.b", "A", "a-", long, "a/b"}},
		{"id", ID, []string{"core@all", "50%", "a+b.c-d_e", "_x", "-x", "run.json", long + long}, []string{"", ".a", "..", "a/b", "a b", "ä", "a\x00", long + long + "a"}},
		{"script", Script, []string{"10-a.sh", "log.new"}, []string{"run.json", "log", "log.old", ".hidden", ""}},
		{"user", User, []string{"a.b-c_d", "_apt"}, []string{"", "A", "1a", "a$", long, "-a"}},
		{"owner", Owner, []string{"0", "4294967294", "Debian-snmp", "machine$", "_apt"}, []string{"", "-1", "4294967295", "a:b", "a b", "1a", long, "00000000001"}},
		{"interface", Interface, []string{"eth0", "eth0.100", "a@b"}, []string{"", ".", "..", "eth\x1b0", "a/b", "a:b", "a b", "eth*", "!eth0", "ä", "abcdefghijklmnop"}},
		{"feature", Feature, []string{"rx-gro-hw"}, []string{"", "TSO", "-a", "a_b"}},
		{"unit", Unit, []string{"docker.service", `dev-disk-by\x2dlabel.device`, "a@b:c.timer"}, []string{"", "docker", ".service", "a b.service", "a.conf", "a/b.service"}},
		{"env", Env, []string{"A_1", "_"}, []string{"", "1a", "a-b", "a=b"}},
		{"path", Path, []string{"/", "/a b/c"}, []string{"", "a", "/a/", "/a//b", "/a/../b", "/a\n", "/a\x1b", "/a\x7f"}},
		{"authored path", AuthoredPath, []string{"/a/", "//a/./b", "/..a"}, []string{"", "a", "/a/..", "/a\x00"}},
		{"pattern", Pattern, []string{"/a/*", "/a/[b-d]?"}, []string{"/a[", "*", "/a/../*"}},
		{"mount option", MountOption, []string{"ro", "size=1m", "nouser", "user=u", "x-systemd.automount"},
			[]string{"", "noauto", "loop", "loop=/dev/loop0", "user", "users", "owner", "group", "remount", "move", "norelatime", "a,b", "a\nb"}},
		{"package", Package, []string{"g++", "libc6:amd64", "libc6:arm64"}, []string{"libc6:i386", "libc6:any", "", "a", "J Q", "-x", "a:", "jq=1", "jq*", "jq/sid"}},
		{"version", Version, []string{"1:2.41-12+deb13u1~x"}, []string{"", "1.7*", "-1", "1 2"}},
		{"source word", SourceWord, []string{"trixie", "stable/updates"}, []string{"", "a b", "[x]", "-x"}},
		{"metrics file", MetricsFile, []string{"/var/lib/prometheus/node-exporter/caisson.prom", "/srv/x.prom"}, []string{"", "x.prom", "/srv/x.txt", "/srv/../x.prom", "/etc/x.prom", "/var/lib/caisson/x.prom", "/srv/.prom", "/srv/.x.prom"}},
		{"loopback", Loopback, []string{"127.0.0.1:9469", "127.9.9.9:1", "[::1]:9469"}, []string{"", "127.0.0.1", "localhost:9469", ":9469", "0.0.0.0:9469", "[::]:9469", "192.0.2.1:9469", "127.0.0.1:0", "[::1%lo]:9469", "[::ffff:192.0.2.1]:1"}},
		{"host and port", func(s string) error { return HealthCheck(spec.HealthCheck{Name: "a", TCP: s, Timeout: 1, Interval: 1}) },
			[]string{"a:1", "a.example:65535", "10.0.0.1:22", "[::1]:22", "[fe80::1]:1"}, []string{"a", "a:", ":1", "a:0", "a:65536", "a:01", "a:x", "::1:22", "[::1]", "[a]:1", "a b:1", "[::1:1", "a:1\n"}},
		{"page", func(s string) error {
			return HealthCheck(spec.HealthCheck{Name: "a", HTTP: s, Timeout: 1, Interval: 1})
		},
			[]string{"http://a", "https://a:1/x?y=z", "http://[::1]:1/"}, []string{"a", "ftp://a", "http://", "http://u@a/", "http://a:0/", "http://a:x/", "file:///etc", "http://a\n/", "http:a"}},
		{"file to look at", func(s string) error {
			return HealthCheck(spec.HealthCheck{Name: "a", File: s, Timeout: 1, Interval: 1})
		},
			[]string{"/run/a b"}, []string{"a", "/", "/a/", "/a/../b", "/a\x00"}},
		{"report registry", reportRegistry, []string{"registry.example.org:5000/metal-a", "r/a/b.c", "[::1]:5000/a"}, []string{"", "registry.example.org", "oci:dir", "r/A", "r/a:tag", "r/a@sha256:b", "u:p@r/a", "https://r/a", "r:/a", "r/a?x", "r/a b", "r/a/", "r//a"}},
		{"report URL", reportURL, []string{"https://fleet.example:8443", "http://127.0.0.1:8443/x"}, []string{"", "fleet.example", "ftp://a", "https://u:p@a", "https://a?x", "https://a/#x", "https://a b", "https://a?"}},
		{"source URL", SourceURL, []string{"https://a.example.org/x", "file:///srv/x"}, []string{"", "a.example.org/x", "http://a\ndeb http://b", "http://a [trusted=yes]", "http://a b"}},
	} {
		for _, s := range tt.good {
			if err := tt.ok(s); err != nil {
				t.Errorf("%s %q: %v", tt.what, s, err)
			}
		}
		for _, s := range tt.bad {
			err := tt.ok(s)
			if err == nil {
				t.Errorf("%s %q is accepted", tt.what, s)
				continue
			}
			if e := All(err)[0]; e.Rule == "" || e.Message == "" {
				t.Errorf("%s %q: %+v", tt.what, s, e)
			}
		}
	}
}

func TestValues(t *testing.T) {
	limit := spec.Limit{ID: "a", Domain: "@staff", Type: "-", Item: "nofile", Value: "1024"}
	mount := spec.Mount{ID: "a", Device: "/dev/x", Target: "/srv/x", Type: "ext4", Options: []string{"ro"}, Before: []string{"a.service"}}
	script := spec.Exec{Name: "a", Data: "#!/bin/sh -e\n", Env: map[string]string{"A": "b\nc"}}
	with := func(field string, change func(*spec.Limit, *spec.Mount, *spec.Exec)) {
		t.Helper()
		l, m, x := limit, mount, script
		change(&l, &m, &x)
		all := append(All(Limit(l)), All(Mount(m))...)
		all = append(all, All(Exec(x))...)
		if field == "" && len(all) > 0 || field != "" && (len(all) != 1 || all[0].Field != field) {
			t.Errorf("want one problem of field %q, got %v", field, Errors(all))
		}
	}
	with("", func(*spec.Limit, *spec.Mount, *spec.Exec) {})
	for _, v := range []string{"unlimited", "infinity", "-1", "0"} {
		with("", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Value = v })
	}
	with("", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Item, l.Value = "nice", "-20" })
	with("", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Item, l.Value = "chroot", "/srv" })
	for _, v := range []string{"-5", "+5", "", "1k", "99999999999999999999"} {
		with("value", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Value = v })
	}
	with("value", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Item, l.Value = "chroot", "srv" })
	with("domain", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Domain = `a"b` })
	with("type", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Type = "firm" })
	with("item", func(l *spec.Limit, _ *spec.Mount, _ *spec.Exec) { l.Item = "nofiles" })

	with("", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) {
		m.Type, m.Options, m.Device = "none", []string{"bind", "ro"}, "/srv/y"
	})
	for _, v := range []string{"bind", "rbind", "none", "auto", "swap", "", "a b", "EXT4"} {
		with("type", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.Type = v })
	}
	for _, v := range []string{"", "a\nb"} {
		with("device", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.Device = v })
	}
	for _, v := range []string{"LABEL=data", "data"} {
		with("device", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) {
			m.Type, m.Options, m.Device = "none", []string{"rbind"}, v
		})
	}
	with("target", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.Target = "/" })
	with("target", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.Target = "srv" })
	with("options", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.Options = []string{"ro", "noauto"} })
	with("after", func(_ *spec.Limit, m *spec.Mount, _ *spec.Exec) { m.After = []string{"docker"} })

	with("", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Data = "echo" }) // sh(1)
	for _, v := range []string{"", "#!sh\n", "#!\n", "#!/bin/sh\n" + strings.Repeat("x", MaxScript)} {
		with("data", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Data = v })
	}
	with("revert", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Revert = "#!sh" })
	with("rerun", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Rerun = "sometimes" })
	with("blocking", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Blocking = "loud" })
	with("once", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Once = "twice" })
	with("onFailure", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.OnFailure = "panic" })
	with("onFailure", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.OnFailure, x.Blocking = "rollback", "background" })
	with("timeout", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Timeout = -1 })
	with("memoryMax", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.MemoryMax = 1 })
	with("cpuQuota", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.CPUQuota = -1 })
	with("tasksMax", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.TasksMax = 1 << 40 })
	with("rerunInterval", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.RerunInterval = -2 })
	with("retryMax", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.RetryMax = -1 })
	with("args", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Args = []string{"a\x00"} })
	with("env", func(_ *spec.Limit, _ *spec.Mount, x *spec.Exec) { x.Env = map[string]string{"1": ""} })
}

func TestInterpreter(t *testing.T) {
	for text, want := range map[string]string{"echo": "/bin/sh", "#!/bin/sh": "/bin/sh", "#! /usr/bin/env  python3 -u \nx": "/usr/bin/env|python3 -u", "#!/bin/sh\t-e\n": "/bin/sh|-e"} {
		if got := strings.Join(Interpreter(text), "|"); got != want {
			t.Errorf("Interpreter(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestSysctlSpellings(t *testing.T) {
	for key, want := range map[string]string{"vm.swappiness": "vm/swappiness", "vm/swappiness": "vm/swappiness", "net.ipv4.conf.eth0/100.forwarding": "net/ipv4/conf/eth0.100/forwarding",
		"net/ipv4/conf/eth0.100/forwarding": "net/ipv4/conf/eth0.100/forwarding", "swappiness": "swappiness"} {
		if got := SysctlPath(key); got != want {
			t.Errorf("SysctlPath(%q) = %q, want %q", key, got, want)
		}
	}
	for _, bad := range []string{"", "swappiness", "vm//x", "vm/../x", "/vm/x", "vm/x/", "vm/a b", "vm/\x1b", "vm/" + strings.Repeat("x", 300)} {
		if Sysctl(spec.Sysctl{Key: bad}) == nil {
			t.Errorf("key %q is accepted", bad)
		}
	}
	for _, bad := range []string{"1\n2", "\x00", strings.Repeat("x", 64<<10+1)} {
		if Sysctl(spec.Sysctl{Key: "vm/x", Value: bad}) == nil {
			t.Errorf("value %.10q is accepted", bad)
		}
	}
}

func TestSpelled(t *testing.T) {
	for item, want := range map[string]string{"sysctl": "net.ipv4.conf.eth0/100.forwarding", "mounts": "net/ipv4/conf/eth0.100/forwarding"} {
		if got := Spelled(spec.Drift{Item: item, Key: "net/ipv4/conf/eth0.100/forwarding"}); got.Key != want {
			t.Errorf("%s: %s, want %s", item, got.Key, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"a", "Node_1", "a.b", "core@all", "run.json", "eth\x1b0", "docker.service", "../x", "jq:amd64"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for what, ok := range map[string]func(string) error{"node": Node, "fleet": Fleet, "id": ID, "script": Script, "user": User, "owner": Owner, "interface": Interface,
			"unit": Unit, "env": Env, "package": Package, "version": Version, "source word": SourceWord, "mount option": MountOption} {
			err := ok(s)
			if err == nil && (s == "" || strings.ContainsAny(s, "\x00\n") || what != "mount option" && strings.ContainsAny(s, " \t[]")) {
				t.Fatalf("%s %q is accepted", what, s)
			}
			if err == nil && (what == "node" || what == "id" || what == "interface") && !filepath.IsLocal("x/"+s) {
				t.Fatalf("%s %q leaves its directory", what, s)
			}
		}
		if SourceURL(s) == nil && strings.ContainsAny(s, " \n[]") {
			t.Fatalf("URL %q is accepted", s)
		}
	})
}

func FuzzPaths(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/a/*", "vm.swappiness", "net/ipv4/conf/eth0.100/forwarding"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if Path(s) == nil && (path.Clean(s) != s || !path.IsAbs(s)) {
			t.Fatalf("path %q is accepted", s)
		}
		if AuthoredPath(s) == nil && Path(path.Clean(s)) != nil {
			t.Fatalf("path %q is accepted as written and not when clean", s)
		}
		key := SysctlPath(s)
		if SysctlPath(SysctlName(key)) != key && Sysctl(spec.Sysctl{Key: key}) == nil {
			t.Fatalf("%q: the name of %q is %q, which is read as %q", s, key, SysctlName(key), SysctlPath(SysctlName(key)))
		}
		if Sysctl(spec.Sysctl{Key: key}) == nil && !filepath.IsLocal(key) {
			t.Fatalf("key %q is accepted", s)
		}
	})
}

func FuzzScript(f *testing.F) {
	f.Add("a", "#!/bin/sh -e\nexit 0\n")
	f.Add("log", "#!sh")
	f.Fuzz(func(t *testing.T, name, text string) {
		if Exec(spec.Exec{Name: name, Data: text}) != nil {
			return
		}
		if !path.IsAbs(Interpreter(text)[0]) || strings.Contains(name, "/") {
			t.Fatalf("script %q %q is accepted", name, text)
		}
	})
}

func FuzzValues(f *testing.F) {
	f.Add("@staff", "nofile", "1024", "/dev/x", "/srv", "ext4", "ro")
	f.Add("*", "chroot", "/x", "/srv/y", "/srv/x", "none", "bind")
	f.Fuzz(func(t *testing.T, domain, item, value, device, target, fstype, option string) {
		l := spec.Limit{ID: "a", Domain: domain, Type: "-", Item: item, Value: value}
		if line := l.Domain + " - " + l.Item + " " + l.Value; Limit(l) == nil && len(strings.Fields(line)) != 4 {
			t.Fatalf("the limit %q is not one line of four words", line)
		}
		m := spec.Mount{ID: "a", Device: device, Target: target, Type: fstype, Options: []string{option}}
		if Mount(m) == nil && (strings.ContainsAny(device+target+fstype+option, "\x00\n") || !path.IsAbs(target) || target == "/") {
			t.Fatalf("the mount %+v is accepted", m)
		}
	})
}

func TestReporting(t *testing.T) {
	const url, registry = "https://fleet.example", "registry.example/metal"
	for _, c := range []struct {
		r     spec.Reporting
		field string // that is wrong; "-" is none
	}{
		{spec.Reporting{URL: url, Interval: 300}, "-"},
		{spec.Reporting{Registry: registry, Interval: 3600}, "-"},
		{spec.Reporting{URL: url, Interval: 86400}, "-"},
		{spec.Reporting{Interval: 300}, ""},
		{spec.Reporting{URL: url, Registry: registry, Interval: 3600}, ""},
		{spec.Reporting{URL: "fleet.example", Interval: 300}, "url"},
		{spec.Reporting{Registry: "oci:dir", Interval: 3600}, "registry"},
		{spec.Reporting{Registry: registry, Interval: 3599}, "interval"},
		{spec.Reporting{URL: url, Interval: 86401}, "interval"},
		{spec.Reporting{URL: url, Interval: 1 << 62}, "interval"},
		{spec.Reporting{URL: url}, "interval"},
		{spec.Reporting{URL: url, Interval: -300}, "interval"},
	} {
		field := "-"
		if all := All(Reporting(c.r)); len(all) == 1 {
			field = all[0].Field
		} else if len(all) > 1 {
			t.Errorf("%+v: %d problems", c.r, len(all))
		}
		if field != c.field {
			t.Errorf("%+v: %q is wrong, want %q", c.r, field, c.field)
		}
	}
}

func TestHidden(t *testing.T) {
	for _, r := range "\x00\a\n\r\x1b\x7f\u0085\u009b\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069" {
		if !Hidden(r) {
			t.Errorf("%U is taken for text", r)
		}
		for what, err := range map[string]error{"value": Sysctl(spec.Sysctl{Key: "kernel.x", Value: "a" + string(r) + "b"}), "path": Path("/a" + string(r) + "b")} {
			if err == nil {
				t.Errorf("a %s takes %U", what, r)
			}
		}
	}
	for _, r := range "\t aé→漢\u00a0\u200d\u202f😀" { // joiners are of words of some scripts
		if Hidden(r) {
			t.Errorf("%U is not taken for text", r)
		}
	}
	for r := range rune(0x3000) {
		want := r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control))
		if Hidden(r) != want {
			t.Errorf("%U is hidden: %t", r, !want)
		}
	}
}
