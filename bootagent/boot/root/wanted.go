// SPDX-License-Identifier: Apache-2.0

package root

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where udev notes what it knows of devices, and where the next root's systemd reads what its last target
// wants beside that root's own units: both are in memory that goes on.
const (
	udevData    = "/run/udev/data"
	wantedThere = "/run/systemd/system/multi-user.target.d/50-caisson-devices.conf"
)

// startWanted has the next root start what udev wants for devices: systemd starts that when a device
// comes, see SYSTEMD_WANTS in systemd.device(5), and behind a soft-reboot none does. Units that are of
// one device alone are left out: such a one has done what the device needed, as an array that was
// begun without all of its disks. A link in a directory .wants would have systemd call the unit enabled.
func (n *Next) startWanted() error {
	devices, _ := filepath.Glob(n.path(udevData + "/*")) // the pattern is one
	var wanted []string
	for _, device := range devices {
		text, err := os.ReadFile(device)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has just gone
			return err
		}
		wanted = append(wanted, wantedBy(string(text))...)
	}
	slices.Sort(wanted)
	if err := os.MkdirAll(n.path(filepath.Dir(wantedThere)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(n.path(wantedThere), []byte("[Unit]\nWants="+strings.Join(slices.Compact(wanted), " ")+"\n"), 0o644)
}

// wantedBy returns the units that the udev database wants for a device that systemd has.
func wantedBy(text string) (units []string) {
	lines := strings.Split(text, "\n")
	if !slices.Contains(lines, "G:systemd") || slices.Contains(lines, "E:SYSTEMD_READY=0") {
		return nil
	}
	for _, line := range lines {
		if list, ok := strings.CutPrefix(line, "E:SYSTEMD_WANTS="); ok {
			units = append(units, strings.Fields(list)...)
		}
	}
	return slices.DeleteFunc(units, func(unit string) bool { return strings.ContainsAny(unit, "@/%") })
}
