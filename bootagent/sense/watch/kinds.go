// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// place is a file whose change is a hint of a kind.
type place struct {
	at   item.Place
	kind string
}

// places are those of all kinds.
func (w *Watch) places(i *spec.Items) (out []place) {
	for _, k := range w.kinds {
		if k.Places != nil {
			out = append(out, plain.Each(k.Places(i), func(p item.Place) place { return place{p, k.Kind} })...)
		}
	}
	return out
}

// kindsOf returns the kinds of which a source tells.
func (w *Watch) kindsOf(source string) []string {
	return plain.Pick(w.kinds, func(k item.Hint) (string, bool) { return k.Kind, slices.Contains(k.Sources, source) })
}

// kindsOfDevice returns the kinds of which an event of a subsystem's device tells.
func (w *Watch) kindsOfDevice(subsystem string) []string {
	return plain.Pick(w.kinds, func(k item.Hint) (string, bool) { return k.Kind, slices.Contains(k.Devices, subsystem) })
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
	w.sayOnce(item.DBus, err)
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
		w.news.hint(w.kindsOf(item.DBus), false, false)
		w.mutex.Unlock()
	}
}
