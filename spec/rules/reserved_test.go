// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// placed are the kinds by what they do with a path.
var placed = map[string]func(p string) error{
	"perm":  func(p string) error { return PermPath(spec.PermPath{Path: p, Owner: "root", Mode: "0600"}) },
	"files": func(p string) error { return File(spec.File{Path: p}) },
	"mounts": func(p string) error {
		return Mount(spec.Mount{ID: "a", Device: "tmpfs", Type: "tmpfs", Target: p})
	},
	"swaps":    func(p string) error { return Swap(spec.Swap{Device: p}) },
	"persist":  Persist,
	"services": func(p string) error { return ServiceDirectory(spec.ServiceDirectory{From: "a", To: p}) },
	"metrics":  MetricsFile,
	"slots":    func(p string) error { return Slot(spec.Slot{Max: 1, Directory: p}) },
	"sysfs":    func(p string) error { return Sysfs(spec.Sysfs{Path: p}) },
}

// What is caisson's own is so for every kind.
func TestReservedForAllKinds(t *testing.T) {
	for _, p := range []string{"/var/lib/caisson", "/var/lib/caisson/state.json", "/run/caisson/x.prom", "/var/run/caisson", "/run/nextroot/etc", "/etc/caisson/site.json", "/usr/lib/caisson/caisson-agent", "/lib/caisson",
		"/usr/bin/caisson-agent", "/bin/caisson-agent", "/usr/lib/systemd/system/caisson-agent.service", "/lib/systemd/system/caisson-agent.service", "/etc/systemd/system/caisson-agent.service",
		"/etc/systemd/system/caisson-agent.service.d/a.conf", "/etc/systemd/system/caisson-agent.service.wants/a.service", "/etc/systemd/system/multi-user.target.wants/caisson-agent.service",
		"/etc/systemd/system/a.service.d/60-caisson-order.conf", "/etc/systemd/system.conf.d/60-caisson-supervise.conf", "/etc/systemd/network/10-caisson-00.network",
		"/etc/security/limits.d/60-caisson-a.conf", "/etc/modprobe.d/zz-caisson-modules.conf"} {
		for kind, check := range placed {
			if check(p) == nil {
				t.Errorf("%s takes %s", kind, p)
			}
		}
	}
	for _, p := range []string{"/etc/passwd", "/etc/shadow", "/etc/group", "/etc/gshadow"} {
		for kind, check := range placed {
			if (check(p) == nil) != (kind == "perm") {
				t.Errorf("%s and %s: %v", kind, p, check(p))
			}
		}
	}
	for _, p := range []string{"/", "/etc", "/usr", "/var", "/var/lib", "/run"} {
		for _, kind := range []string{"mounts", "persist", "services"} {
			if placed[kind](p) == nil {
				t.Errorf("%s takes %s", kind, p)
			}
		}
	}
}

// What a link of the system leads to is refused as what it is; so are directories whose
// programs and units a mount would hide.
func TestMountsHideNothing(t *testing.T) {
	for _, p := range []string{"/var/run", "/run", "/lib", "/usr/lib", "/usr/bin", "/sbin", "/etc/systemd/system"} {
		if placed["mounts"](p) == nil {
			t.Errorf("mounts take %s", p)
		}
	}
	for _, p := range []string{"/usr/local", "/var/lib/docker", "/srv", "/run/user/1000/x"} {
		if err := placed["mounts"](p); err != nil {
			t.Errorf("mounts and %s: %v", p, err)
		}
	}
}

// What only looks alike is a site's.
func TestReservedIsNoMore(t *testing.T) {
	for _, p := range []string{"/etc/caisson.conf", "/etc/systemd/system/a.service.d/60-own.conf", "/etc/systemd/system/not-caisson-.service", "/etc/systemd/network/20-own.network"} {
		for _, kind := range []string{"perm", "files", "mounts", "swaps"} {
			if err := placed[kind](p); err != nil {
				t.Errorf("%s and %s: %v", kind, p, err)
			}
		}
	}
	for _, p := range []string{"/home", "/var/log", "/var/lib/caisson-data"} {
		for _, kind := range []string{"perm", "mounts", "persist"} {
			if err := placed[kind](p); err != nil {
				t.Errorf("%s and %s: %v", kind, p, err)
			}
		}
	}
}

// A directory above what is caisson's own stays root's.
func TestNothingAboveIsGivenAway(t *testing.T) {
	for _, tt := range []struct {
		spec.PermPath
		ok bool
	}{
		{spec.PermPath{Path: "/var/lib", Owner: "root", Group: "staff", Mode: "0755"}, true},
		{spec.PermPath{Path: "/etc", Mode: "go-w"}, true},
		{spec.PermPath{Path: "/etc/shadow", Owner: "nobody", Mode: "0640"}, true},
		{spec.PermPath{Path: "/home", Owner: "nobody"}, true},
		{spec.PermPath{Path: "/var/lib", Owner: "nobody"}, false},
		{spec.PermPath{Path: "/", Mode: "0777"}, false},
		{spec.PermPath{Path: "/etc/systemd/system", Mode: "g+w"}, false},
		{spec.PermPath{Path: "/var/run", Owner: "1000"}, false},
	} {
		if err := PermPath(tt.PermPath); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.PermPath, err)
		}
	}
}

// A unit is not linked into one of caisson's own, nor called by its name.
func TestInstallNamesNoUnitOfCaisson(t *testing.T) {
	for text, ok := range map[string]bool{
		"[Install]\nWantedBy=multi-user.target\n":                             true,
		"[Unit]\nAfter=caisson-agent.service\n":                               true,
		"[Install]\nAlias=caisson-agent.service\n":                            false,
		"[Install]\nWantedBy=a.target \\\n caisson-agent.service\n":           false,
		"[Install]\nRequiredBy=caisson-agent.service\n":                       false,
		"[Install]\nAlso=caisson-deadline.timer\n":                            false,
		"[Install]\n# Alias=caisson-agent.service\nWantedBy=default.target\n": true,
	} {
		if err := UnitSettings(spec.Unit{Name: "a.service", Content: text}); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if UnitSettings(spec.Unit{Name: "a.service", DropIns: []spec.DropIn{{Name: "60-caisson-order", Content: "[Unit]\n"}}}) == nil {
		t.Error("a drop-in takes the name of one of caisson's own")
	}
	if Mount(spec.Mount{ID: "a", Device: "tmpfs", Type: "tmpfs", Target: "/srv", Before: []string{"caisson-agent.service"}}) == nil {
		t.Error("a mount comes before what makes it")
	}
}
