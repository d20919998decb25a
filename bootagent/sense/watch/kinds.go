// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Sources of hints, as status names them.
const (
	BPF       = "bpf"       // writes of kernel parameters, see package bpf
	DBus      = "dbus"      // properties of units of systemd
	Ethtool   = "ethtool"   // the monitor group of the kernel's ethtool netlink
	Inotify   = "inotify"   // files that caisson writes or keeps, see inotify(7)
	Mountinfo = "mountinfo" // the mounts of the node, see proc_pid_mountinfo(5)
	Rtnetlink = "rtnetlink" // network interfaces, see rtnetlink(7)
	Swaps     = "swaps"     // swap space in use, see proc_swaps(5)
	Uevent    = "uevent"    // devices and modules that come and go
)

// kinds is the one table of what tells of which kind; a kind that is not in it has no
// hints, as scripts, which are looked at when they are due, and secrets, which are root's alone.
var kinds = []struct {
	name    string
	sources []string
	devices []string // subsystems of the kernel whose events are hints
	places  func(*spec.Items) []place
}{
	{"modules", []string{Inotify, Uevent}, []string{"module"}, func(i *spec.Items) []place {
		if i.Modules == nil {
			return nil
		}
		return []place{{path: rules.ModulesLoadFile}, {path: rules.ModprobeFile}}
	}},
	{"mounts", []string{Mountinfo, Uevent}, []string{"block"}, nil},
	{"swaps", []string{Swaps, Uevent}, []string{"block"}, nil},
	{"limits", []string{Inotify}, nil, func(i *spec.Items) []place {
		return plain.Each(i.Limits, func(l spec.Limit) place { return place{path: rules.LimitFile(l.ID)} })
	}},
	{"files", []string{Inotify}, nil, func(i *spec.Items) []place {
		return plain.Each(i.Files, func(f spec.File) place { return place{path: f.Path} })
	}},
	{"passwords", []string{Inotify}, nil, func(i *spec.Items) []place {
		if len(i.Passwords) == 0 {
			return nil
		}
		return []place{{path: "/etc/shadow"}}
	}},
	{"sysctl", []string{BPF, Rtnetlink}, nil, nil},
	{"sysfs", []string{Inotify, Uevent}, []string{"module", "block", "net", "cpu", "pci"}, func(i *spec.Items) []place {
		return plain.Each(i.Sysfs, func(s spec.Sysfs) place { return place{path: s.Path, itself: true} })
	}},
	{"ethtool", []string{Ethtool, Rtnetlink}, nil, nil},
	{"nics", []string{Ethtool, Rtnetlink, Uevent}, []string{"net"}, nil},
	{"perm", []string{Inotify}, nil, func(i *spec.Items) (out []place) {
		if i.Perm == nil {
			return nil
		}
		for _, p := range i.Perm.Paths {
			if !strings.ContainsAny(p.Path, `*?[\`) {
				out = append(out, place{path: p.Path, itself: true})
			}
		}
		return out
	}},
	{"service", []string{DBus, Mountinfo}, nil, nil},
	{"units", []string{DBus, Inotify}, nil, func(i *spec.Items) (out []place) {
		for _, u := range i.Units {
			out = append(out, place{path: rules.UnitFile(u.Name)}, place{path: path.Dir(rules.UnitDropIn(u.Name, "any"))})
			for _, d := range u.DropIns {
				out = append(out, place{path: rules.UnitDropIn(u.Name, d.Name)})
			}
		}
		return out
	}},
}

// place is a file whose change is a hint.
type place struct {
	path   string
	kind   string
	itself bool // also what happens to the file without its directory's knowing: sysfs, and other names of it
}

// places are those of all kinds.
func places(i *spec.Items) (out []place) {
	for _, k := range kinds {
		if k.places == nil {
			continue
		}
		for _, p := range k.places(i) {
			p.kind = k.name
			out = append(out, p)
		}
	}
	return out
}

// Sources returns what can tell of a kind, nil for nothing.
func Sources(kind string) []string {
	for _, k := range kinds {
		if k.name == kind {
			return k.sources
		}
	}
	return nil
}

// kindsOf returns the kinds of which a source tells.
func kindsOf(source string) (out []string) {
	for _, k := range kinds {
		if slices.Contains(k.sources, source) {
			out = append(out, k.name)
		}
	}
	return out
}

// kindsOfDevice returns the kinds of which an event of a subsystem's device tells.
func kindsOfDevice(subsystem string) (out []string) {
	for _, k := range kinds {
		if slices.Contains(k.devices, subsystem) {
			out = append(out, k.name)
		}
	}
	return out
}

const (
	systemdBus     = "org.freedesktop.systemd1"
	systemdManager = "org.freedesktop.systemd1.Manager"
	properties     = "org.freedesktop.DBus.Properties"
)

// units is a connection on which systemd tells of units.
type units struct {
	conn  *dbus.Conn
	names []string
}

func (u *units) close() {
	if u != nil {
		u.conn.Close() // nothing is asked any more
	}
}

// followUnits has systemd tell of the units of an overlay; the mutex is held.
func (w *Watch) followUnits(o *spec.Overlay) {
	names := plain.Each(o.Items.Units, func(u spec.Unit) string { return u.Name })
	names = append(names, plain.Each(o.Services, func(s spec.Service) string { return s.Unit })...)
	slices.Sort(names)
	names = slices.Compact(names)
	if w.units != nil && w.units.conn.Connected() && slices.Equal(w.units.names, names) {
		return
	}
	w.units.close()
	w.units = nil
	if len(names) == 0 || !w.systemd {
		return
	}
	conn, err := subscribe(names)
	w.sayOnce(DBus, err)
	if err != nil {
		return
	}
	w.units = &units{conn, names}
	signals := make(chan *dbus.Signal, most)
	conn.Signal(signals)
	go w.hear(signals)
}

// subscribe asks for what changes in some units, for files of any, and for reloads.
func subscribe(names []string) (*dbus.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := dbus.ConnectSystemBus()
	if err != nil {
		return nil, err
	}
	matches := [][]dbus.MatchOption{
		{dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("UnitFilesChanged")},
		{dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("Reloading")},
	}
	for _, name := range names {
		path := dbus.ObjectPath("/org/freedesktop/systemd1/unit/" + systemd.PathBusEscape(name))
		matches = append(matches, []dbus.MatchOption{dbus.WithMatchObjectPath(path), dbus.WithMatchInterface(properties),
			dbus.WithMatchMember("PropertiesChanged")})
	}
	for _, m := range matches {
		if err == nil {
			err = conn.AddMatchSignalContext(ctx, m...)
		}
	}
	if err == nil {
		err = conn.Object(systemdBus, "/org/freedesktop/systemd1").CallWithContext(ctx, systemdManager+".Subscribe", 0).Err
	}
	if err != nil {
		conn.Close() // err says what failed
		return nil, err
	}
	return conn, nil
}

// hear makes hints of signals, until the connection is closed.
func (w *Watch) hear(signals <-chan *dbus.Signal) {
	for range signals {
		time.Sleep(gather)
		for len(signals) > 0 {
			<-signals
		}
		w.mutex.Lock()
		w.hint(kindsOf(DBus), false, false)
		w.mutex.Unlock()
	}
}
